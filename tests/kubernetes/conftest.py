"""The cluster that the environment names, with Virtpod installed; spaces and consoles as the e2e tests have them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.e2e.conftest import Space, space
from tests.e2e.kubernetes import Kubernetes, attach

__all__ = ["Space", "space"]


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    return Cluster.from_environment()


@pytest.fixture(scope="session")
def engine() -> Iterator[Kubernetes]:
    engine = attach()
    engine.start()
    yield engine
    engine.stop()


@pytest.fixture
def owned(cluster: Cluster) -> Cluster:
    """A cluster whose processes we may kill."""
    if not cluster.owned:
        pytest.skip("the cluster is not ours to break")
    return cluster
