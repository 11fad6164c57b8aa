"""node/v1, what virt-api asks of this node."""
