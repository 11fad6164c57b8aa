"""`virtctl credentials`: SSH keys and passwords in the Secrets that a VM's access credentials name."""
