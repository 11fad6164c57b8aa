"""Figures of the machines of this node, for Prometheus."""
