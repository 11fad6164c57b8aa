"""The volumes of a Pod, made on the node before its containers."""
