"""Steps from one status to the next that everybody takes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from virt_core.apis import handoffs
from virt_core.apis.base import encode
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus
from virt_core.kube.vmistatus import with_handoff

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READY = handoffs.LAUNCHER_READY


def test_a_handoff_happens_once_for_the_start_and_once_for_each_move() -> None:
    status = VirtualMachineInstanceStatus()
    for seconds, pod_uid in enumerate(["", "", "b", "b", "c"]):
        status = with_handoff(status, READY, NOW + timedelta(seconds=seconds), pod_uid=pod_uid)
    assert [(each.pod_uid, each.time[17:19]) for each in status.handoffs] == [("", "00"), ("b", "02"), ("c", "04")]
    assert [each.pod_uid for each in handoffs.of_start(status.handoffs)] == [""]


def test_a_handoff_of_the_start_says_nothing_of_pods() -> None:
    """As every client has seen it so far."""
    status = with_handoff(VirtualMachineInstanceStatus(), READY, NOW)
    expected = b'{"name":"launcher-ready","owner":"virt-launcher","time":"2026-01-01T00:00:00.000000Z"}'
    assert encode(status.handoffs[0]) == expected
