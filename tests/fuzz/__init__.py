"""Hostile input for everything that reads what others wrote: README.md says what is looked at and how."""
