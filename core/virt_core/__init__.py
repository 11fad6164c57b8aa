"""What all Virtpod programs share: API types, the Kubernetes client, the RPC plumbing and the process runtime."""

__version__ = "0.1.0"
