"""The built-in kinds: one row each, with their defaults, their rules and their columns."""
