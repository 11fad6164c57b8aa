"""Restores: claims made from a snapshot's volumes, and the VM as it was, in its old place or as a new one."""
