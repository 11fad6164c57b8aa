"""The door to libvirt: the ports that the launcher speaks, the only modules that import libvirt, and its daemon."""
