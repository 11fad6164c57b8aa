"""The controllers that a cluster has besides its API server: scheduler, node lifecycle, Pod clean-up, volume claims."""
