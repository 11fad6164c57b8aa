"""Which node a Pod runs on."""
