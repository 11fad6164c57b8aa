"""Hook sidecars: what others may change about the machine before it starts. Imported only where there are any."""
