"""Admission through a rollout of virt-api: reviews come by the aggregation layer, which must not lose one."""

from __future__ import annotations

import pytest
from framework.waiting import running

from tests.cluster import Cluster
from tests.e2e.conftest import Space

from .test_certificates import NAMESPACE, Traffic, admitted

pytestmark = pytest.mark.alone

VIRT_API = ("-n", NAMESPACE, "deployment/virt-api")


@pytest.mark.timeout(400)
def test_no_review_is_lost_while_virt_api_is_replaced(cluster: Cluster, space: Space) -> None:
    traffic = Traffic("admission", admitted(cluster, space))
    with running(traffic.run, within_s=60):
        for _ in range(2):
            cluster.kubectl("rollout", "restart", *VIRT_API)
            cluster.kubectl("rollout", "status", *VIRT_API, "--timeout=150s", timeout=160)
    assert traffic.failures == []
    assert traffic.done > 20
