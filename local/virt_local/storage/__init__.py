"""Volumes, snapshots and copies on one machine's disk, for virt-local and for clusters whose nodes share a machine."""
