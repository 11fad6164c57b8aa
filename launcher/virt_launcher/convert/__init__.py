"""VMI → domain: a flat tuple of configurators, one for each feature."""
