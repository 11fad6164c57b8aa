"""The small parts: records, limits, bounds, sessions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from framework.vmis import POD_UID, UID, handed_over

from virt_core.apis.base import encode
from virt_core.apis.podroles import Role
from virt_core.runtime.clock import FakeClock
from virt_handler.decisions.domains import bounded, newest
from virt_handler.decisions.limits import clip
from virt_handler.decisions.vocabulary import Task
from virt_handler.loop.rates import TokenBucket
from virt_handler.loop.records import GhostRecord, RecordStore
from virt_handler.loop.roster import Sessions
from virt_handler.loop.sessions import Session
from virt_handler.pods.files import UnsafeFileError, checked_name
from virt_protos.launcher.v1 import launcher_pb2 as pb

GHOST = GhostRecord(vmi_uid=UID, namespace="default", name="vm", pod_uid=POD_UID, grace_seconds=7)


def session(clock: FakeClock | None = None) -> Session:
    return Session(GHOST, clock or FakeClock())


def test_records_come_back_after_a_restart(tmp_path: Path) -> None:
    RecordStore(str(tmp_path), GhostRecord).put(GHOST)
    again = RecordStore(str(tmp_path), GhostRecord)
    assert list(again.all()) == [GHOST]
    assert (tmp_path / f"{POD_UID}.json").stat().st_mode & 0o777 == 0o600
    again.delete(POD_UID)
    again.delete(POD_UID)
    assert again.get(POD_UID) is None


def test_records_of_an_older_version_go_to_their_pods(tmp_path: Path) -> None:
    """It named them after the VMI. What is there by the Pod's name already was written later."""
    (tmp_path / f"{UID}.json").write_bytes(encode(GHOST))
    store = RecordStore(str(tmp_path), GhostRecord)
    for _ in range(2):
        store.take_over()
        assert os.listdir(tmp_path) == [f"{POD_UID}.json"]
        assert list(store.all()) == [GHOST]
    newer = GhostRecord(vmi_uid=UID, namespace="default", name="vm", pod_uid=POD_UID, grace_seconds=9)
    store.put(newer)
    (tmp_path / f"{UID}.json").write_bytes(encode(GHOST))
    (tmp_path / "torn.json").write_bytes(b"{")
    store.take_over()
    assert os.listdir(tmp_path) == [f"{POD_UID}.json"]
    assert list(store.all()) == [newer]


def test_a_torn_record_is_none(tmp_path: Path) -> None:
    (tmp_path / f"{UID}.json").write_text('{"vmiUid": "x"')
    store = RecordStore(str(tmp_path), GhostRecord)
    assert list(store.all()) == []
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b", "x" * 300])
def test_names_that_are_no_plain_segments_are_refused(name: str) -> None:
    with pytest.raises(UnsafeFileError):
        checked_name(name)


def test_bucket_allows_a_burst_then_a_rate() -> None:
    clock = FakeClock()
    bucket = TokenBucket(clock, burst=3, per_second=2.0)
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    clock.step(0.5)
    assert [bucket.take() for _ in range(2)] == [True, False]


def test_text_of_a_guest_is_clipped_and_clean() -> None:
    assert clip("a\x1b[31mb\n", 100) == "a [31mb "
    assert len(clip("x" * 5000)) == 1024


def test_what_a_guest_tells_is_bounded() -> None:
    nic = pb.GuestInterface(guest_name="e" * 999, ip_addresses=[f"10.0.0.{n}" for n in range(200)])
    huge = pb.Domain(interfaces=[nic] * 500, os_info=pb.OSInfo(name="n" * 9999), message="m" * 9999)
    small = bounded(huge)
    assert len(small.interfaces) == 64
    assert len(small.interfaces[0].ip_addresses) == 32
    assert small.ByteSize() < 64 * 1024 * 2
    assert len(small.os_info.name) == 253
    assert len(huge.interfaces) == 500, "the original is not changed"


def test_an_end_is_never_taken_back() -> None:
    over = pb.Domain(state=pb.DOMAIN_STATE_SHUTOFF, reason="Shutdown")
    assert newest(over, pb.Domain(state=pb.DOMAIN_STATE_RUNNING)) is over
    assert newest(None, over) is over


def test_old_messages_and_stale_answers_are_dropped() -> None:
    one = session()
    paused, runs = pb.Domain(state=pb.DOMAIN_STATE_PAUSED), pb.Domain(state=pb.DOMAIN_STATE_RUNNING)
    asked_at = one.version()
    assert one.domain_told(paused, 5)
    assert not one.domain_told(runs, 5)
    assert not one.domain_told(runs, 4)
    one.domain_read(runs, asked_at)
    assert one.view().domain == paused
    one.domain_read(runs, one.version())
    assert one.view().domain == runs


def test_retries_grow_and_keep_the_first_start() -> None:
    clock = FakeClock()
    one = session(clock)
    one.sync_started("asked")
    started = one.view().sync.started
    one.sync_failed("a", fatal=False)
    clock.step(10)
    one.sync_started("asked")
    one.sync_failed("b", fatal=False)
    work = one.view().sync
    assert (work.task, work.started, work.error) == (Task.FAILED, started, "b")
    assert work.retry_at is not None
    assert (work.retry_at - clock.now()).total_seconds() == 1.0


def test_handoffs_of_the_launcher_are_believed_within_reason() -> None:
    clock = FakeClock()
    one = session(clock)
    good = int(clock.now().timestamp() * 1e6) - 5_000_000
    response = pb.SyncVMIResponse(
        domain=pb.Domain(state=pb.DOMAIN_STATE_RUNNING),
        handoffs=[pb.Handoff(name="domain-defined", time_us=good), pb.Handoff(name="guest-started", time_us=2**62)],
    )
    one.sync_done(response, one.version())
    times = one.view().handoffs
    assert (clock.now() - times["domain-defined"]).total_seconds() == 5
    assert times["guest-started"] == clock.now()


def test_sessions_by_key() -> None:
    sessions = Sessions()
    sessions.add(session())
    assert [s.vmi_uid for s in sessions.of_key("default/vm")] == [UID]
    assert sessions.of_key("default/other") == []
    assert sessions.remove(POD_UID) is not None
    assert list(sessions) == []


def test_the_pod_that_has_the_guest_speaks_for_the_vmi() -> None:
    sessions = Sessions()
    for pod_uid in ("a", "b"):
        sessions.add(Session(GhostRecord(vmi_uid=UID, namespace="default", name="vm", pod_uid=pod_uid), FakeClock()))
    assert [each.pod_uid for each in sessions.of_vmi(UID)] == ["a", "b"]
    assert sessions.active(UID) is None, "nobody has looked at the VMI yet"
    for node, has_guest in (("node1", "a"), ("node2", "b"), ("node3", None)):
        moved = handed_over("Running", status={"nodeName": node, "activePods": {"a": "node1", "b": "node2"}})
        for each in sessions:
            each.follow(moved, "node1" if each.pod_uid == "a" else "node2")
        found = sessions.active(UID)
        assert (found.pod_uid if found is not None else None) == has_guest


def test_a_pod_is_where_the_vmi_has_it() -> None:
    """Not what is kept about it elsewhere."""
    one = session()
    for node, role in (("node1", Role.ACTIVE), ("node2", None)):
        one.follow(handed_over("Running"), node)
        assert one.role is role
