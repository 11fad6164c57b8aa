"""What replica sets and pools share: selectors, ownership, status."""
