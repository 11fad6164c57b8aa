"""A real Kubernetes on this machine, to test on: `python -m tests.cluster up`, and `Cluster` for tests."""

from .cluster import Cluster
from .errors import ClusterError

__all__ = ["Cluster", "ClusterError"]
