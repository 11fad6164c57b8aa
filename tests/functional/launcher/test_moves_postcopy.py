"""A guest whose memory is on two sides: it runs on one, the rest of its memory is on the other, and the way between is
lost. It waits for it: to end either side would be to lose the guest."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests.functional.launcher.sandbox import eventually
from tests.functional.launcher.test_moves import JOB, Pair, domain, half_way
from tests.functional.launcher.vmis import request, vmi
from virt_core.apis import names
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root
Cache = list[pb.CacheFile]
#: Little enough that the guest runs there before all of its memory has come.
STEP, PATIENCE_S = 1 << 14, 0.7
SETTING = Path("/proc/sys/vm/unprivileged_userfaultfd")


@pytest.fixture
def user_faults() -> Iterator[None]:
    """QEMU as an ordinary user may fetch memory when the guest asks for it."""
    before = SETTING.read_text()
    try:
        SETTING.write_text("1")
    except OSError:
        pytest.skip(f"{SETTING} is {before.strip()} and cannot be set here")
    try:
        yield
    finally:
        SETTING.write_text(before)


@pytest.fixture
def split(user_faults: None, capability_cache: Cache) -> Iterator[tuple[Pair, threading.Event]]:
    """A machine in post-copy, with most of its memory still on the way; what is set lets the rest pass. It has no
    picture: QEMU draws in the thread that also hears libvirt, so it would wait there for memory that is not there."""
    pair, body = Pair(), vmi(devices={"autoattachGraphicsDevice": False, "autoattachMemBalloon": False})
    try:
        pair.start()
        asked = request(body, capability_cache)
        pair.source.stub.SyncVMI(asked, timeout=60)
        message = pb.PrepareTargetRequest(vmi_json=asked.vmi_json, options=asked.options)
        pair.target.stub.PrepareTarget(message, timeout=60)
        pair.connect()
        on = half_way(pair, body, completion_timeout_per_gib=1, workload_disruption=True, post_copy=True)
        pair.source.handler.wait_for(lambda d: d.move.mode == "PostCopy")
        yield pair, on
    finally:
        pair.close()


def is_whole_and_runs(there: pb.Domain) -> bool:
    return there.state == pb.DOMAIN_STATE_RUNNING and not there.reason


def test_post_copy_ends_what_would_not_end(split: tuple[Pair, threading.Event]) -> None:
    pair, on = split
    on.set()
    over = pair.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    assert (over.move.failed, over.move.mode) == (False, "PostCopy"), over.move.reason
    pair.target.handler.wait_for(is_whole_and_runs)
    assert pair.source.wait_exit() == 0


def cut_in_the_middle(pair: Pair, on: threading.Event) -> None:
    """The guest runs there, and a part of its memory is here. Nobody gets through from now on."""
    memory = pair.cables[names.SOCKET_MOVE_MEMORY]
    while True:
        on.set()
        memory.stop_after(memory.bytes + STEP)
        if pair.target.handler.hears(lambda d: d.state == pb.DOMAIN_STATE_RUNNING, PATIENCE_S):
            break
    for cable in pair.cables.values():
        cable.is_cut = True
        cable.cut()


def reconnect(pair: Pair) -> None:
    for cable in pair.cables.values():
        cable.is_cut = False
        cable.gate.set()


def test_a_lost_way_is_waited_for(split: tuple[Pair, threading.Event]) -> None:
    pair, on = split
    cut_in_the_middle(pair, on)
    told = pair.source.handler.wait_for(lambda d: "lost in post-copy" in d.move.reason)
    assert not told.move.ended_us
    assert not any(d.move.held for d in pair.source.handler.domains), "who is held gets ended"
    with pytest.raises(grpc.RpcError) as call:
        pair.source.stub.CancelMigration(pb.CancelMigrationRequest(uid=JOB), timeout=10)
    assert "can only go on" in (call.value.details() or "")
    waits = eventually(lambda: (d := domain(pair.target)).reason == "PostcopyFailed" and d)
    assert waits.state == pb.DOMAIN_STATE_RUNNING
    assert domain(pair.source).reason == "PostcopyFailed"
    reconnect(pair)
    over = pair.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    assert not over.move.failed, over.move.reason
    pair.target.handler.wait_for(is_whole_and_runs)
    assert pair.source.wait_exit() == 0
