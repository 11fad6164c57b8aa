"""virt-local's API server: the Kubernetes HTTP API served from one SQLite file."""
