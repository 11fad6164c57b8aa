"""The way of a machine from one node to another: what its two launchers say to each other, between their nodes."""
