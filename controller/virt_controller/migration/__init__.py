"""Moves of running machines to other nodes."""
