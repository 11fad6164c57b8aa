"""From a Pod's container to the bundle that runc runs."""
