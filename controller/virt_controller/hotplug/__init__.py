"""Volumes that come and go while their machine runs: the Pods that bring them to its node, and how far each is."""
