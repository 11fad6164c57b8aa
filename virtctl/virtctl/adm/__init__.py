"""`virtctl adm`: what concerns the installation, not one machine."""
