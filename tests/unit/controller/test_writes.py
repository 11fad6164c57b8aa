"""One patch for what changed, tested against the version that was read; and reading one's own writes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from framework.fake_kube import FakeKube, failure, fake_kube
from framework.vmis import plain_vmi, vmi
from msgspec.structs import replace

from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import Conflict, Invalid
from virt_core.kube.vmistatus import with_condition, with_failure, with_phase, without_condition
from virt_core.kube.writes import OwnWrites, difference, write_difference

VMI = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as fake:
        yield fake


def changed(old: VirtualMachineInstance) -> VirtualMachineInstance:
    metadata = replace(old.metadata, labels={"a/b": "c"}, finalizers=[])
    return replace(old, metadata=metadata, status=replace(with_phase(old.status, "Running", NOW), handoffs=[]))


def test_difference_touches_only_what_changed() -> None:
    operations = {(o["op"], o["path"]) for o in difference(vmi(), changed(vmi()))}
    assert operations == {
        ("add", "/metadata/labels"),
        ("add", "/metadata/finalizers"),
        ("add", "/status/phase"),
        ("add", "/status/phaseTransitionTimestamps"),
        ("remove", "/status/handoffs"),
    }
    assert difference(vmi(), vmi()) == []


def test_label_is_added_beside_others() -> None:
    old = vmi(metadata={"labels": {"x": "y"}})
    (operation,) = difference(old, replace(old, metadata=replace(old.metadata, labels={"x": "y", "a/b": "c"})))
    assert operation == {"op": "add", "path": "/metadata/labels/a~1b", "value": "c"}


def test_write_and_conflict(kube: FakeKube) -> None:
    kube.put(VMI, plain_vmi())
    client = kube.client()
    old = client.get(VirtualMachineInstance, "vm", "default")
    written = write_difference(client, old, changed(old))
    assert written is not None
    assert (written.status.phase, written.metadata.labels) == ("Running", {"a/b": "c"})
    with pytest.raises(Conflict):
        write_difference(client, old, changed(old))
    assert write_difference(client, written, written) is None
    assert len(kube.methods("PATCH")) == 2


def test_refused_field_is_no_conflict(kube: FakeKube) -> None:
    """A 422 with causes is about the object, and trying again would not help."""
    kube.put(VMI, plain_vmi())
    status, body, headers = failure(422, "Invalid", "no")
    body["details"] = {"causes": [{"field": "status.phase", "message": "no"}]}
    kube.on_request = lambda method, *_: (status, body, headers) if method == "PATCH" else None
    with pytest.raises(Invalid):
        write_difference(kube.client(), vmi(), changed(vmi()))


def test_own_write_is_seen_until_the_cache_has_it() -> None:
    writes: OwnWrites[VirtualMachineInstance] = OwnWrites()
    old, mine, newer = (vmi(metadata={"resourceVersion": version}) for version in ("9", "10", "11"))
    assert writes.freshest(old) is old
    writes.remember(mine)
    assert writes.freshest(old) is mine
    assert writes.freshest(newer) is newer
    assert writes.freshest(old) is old, "once the cache was newer, it is trusted"


def test_steps_of_a_status_leave_their_input_alone() -> None:
    before = with_condition(vmi().status, "Ready", "True", now=NOW)
    copy = with_condition(vmi().status, "Ready", "True", now=NOW)
    after = with_failure(before, "Why", "because", NOW)
    assert before == copy
    assert (after.phase, after.reason) == ("Failed", "Why")
    assert with_condition(after, "Synchronized", "False", "Why", "because", now=NOW) is after
    assert without_condition(before, "Absent") is before
