"""Directories that the guest shares with its Pod, by virtiofs."""
