"""Figures of the node and of the machine, for a guest that is to know them: as a disk, or on a port."""
