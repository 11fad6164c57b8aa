"""Images: an OCI layout on disk, unpacked once, and the host's own root as the launcher's image."""
