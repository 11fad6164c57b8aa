"""What QEMU can do on a node, asked once."""
