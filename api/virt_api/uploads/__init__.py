"""Uploads of disks where DataVolumes are ours: a token for a claim, and the way to its importer."""
