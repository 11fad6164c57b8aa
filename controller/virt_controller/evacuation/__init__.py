"""Machines that must leave their node."""
