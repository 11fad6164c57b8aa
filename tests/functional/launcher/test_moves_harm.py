"""A move that is given up, is too slow or cannot end: it says why, and the guest is alive where it was."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.functional.launcher.sandbox import Sandbox, eventually
from tests.functional.launcher.test_moves import JOB, is_running, migrate
from tests.functional.launcher.test_moves_whole import Boxes
from tests.functional.launcher.vmis import vmi
from virt_core.apis import names
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root
Cache = list[pb.CacheFile]
BACKEND = "/machine/peripheral/ua-scratch/virtio-backend"


@pytest.fixture
def boxes() -> Iterator[Boxes]:
    both = Boxes()
    try:
        yield both
    finally:
        both.close()


def with_scratch(size: str) -> dict[str, Any]:
    body = vmi(devices={"disks": [{"name": "scratch", "disk": {"bus": "virtio"}}]})
    body["spec"]["volumes"] = [{"name": "scratch", "emptyDisk": {"capacity": size}}]
    return body


def has_nothing(box: Sandbox) -> bool:
    return not box.stub.GetDomain(pb.GetDomainRequest()).HasField("domain")


def failed(boxes: Boxes) -> pb.Move:
    over = boxes.source.handler.wait_for(lambda d: d.move.ended_us > 0).move
    assert over.failed
    eventually(lambda: is_running(boxes.source))
    eventually(lambda: has_nothing(boxes.target))
    return over


@pytest.mark.parametrize("percent", [10, 50, 90])
def test_a_move_is_given_up_at(boxes: Boxes, capability_cache: Cache, percent: int) -> None:
    """Of what its disk and memory come to."""
    body = with_scratch("64Mi")
    boxes.begin(capability_cache, body)
    fill(boxes.source, 24)
    boxes.prepare(body)
    boxes.connect()
    # So slow that the last tenth is told of several times.
    migrate(boxes, body, bandwidth_mib=4 if percent < 90 else 1)
    far = boxes.source.handler.wait_for(lambda d: d.move.total_bytes > 0 and done(d.move) >= percent)
    assert not far.move.ended_us
    boxes.source.stub.CancelMigration(pb.CancelMigrationRequest(uid=JOB), timeout=10)
    assert failed(boxes).abort == "Succeeded"


def done(move: pb.Move) -> float:
    return 100 * move.processed_bytes / ((move.processed_bytes + move.remaining_bytes) or 1)


def fill(box: Sandbox, mib: int) -> None:
    """Writes to the guest's disk what cannot be left out, as the guest would."""
    command = f'qemu-io -d {BACKEND} "write -P 7 0 {mib}M"'
    box.virsh("qemu-monitor-command", "--hmp", "ns_vm1", command)


def test_a_move_without_progress_is_given_up(boxes: Boxes, capability_cache: Cache) -> None:
    """The way stands still: nothing is lost, and nothing comes any more."""
    body = vmi()
    boxes.begin(capability_cache, body)
    boxes.prepare(body)
    boxes.connect()
    boxes.cables[names.SOCKET_MOVE_MEMORY].stop_after(100_000)
    migrate(boxes, body, progress_timeout=1)
    over = failed(boxes)
    assert "made no progress for 1 s" in over.reason
    assert over.abort == "Succeeded"


def test_a_disk_that_has_no_room_there(small: Boxes, capability_cache: Cache) -> None:
    body = with_scratch("64Mi")
    small.begin(capability_cache, body)
    fill(small.source, 24)
    small.prepare(body)
    small.connect()
    migrate(small, body)
    reason = failed(small).reason
    assert "vda" in reason or "scratch" in reason, reason
    assert "No space left on device" in reason


@pytest.fixture
def small(boxes: Boxes) -> Iterator[Boxes]:
    """The target has room for 8 MiB."""
    place = boxes.target.root / "ephemeral"
    owner = f"size=8M,mode=755,uid={names.LAUNCHER_UID},gid={names.LAUNCHER_UID}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", owner, "tmpfs", str(place)], check=True)
    try:
        yield boxes
    finally:
        boxes.close()
        subprocess.run(["umount", str(place)], check=True)
        shutil.rmtree(boxes.target.root)


def test_a_machine_that_ends_in_the_middle_is_nowhere(boxes: Boxes, capability_cache: Cache) -> None:
    body = vmi()
    boxes.begin(capability_cache, body)
    boxes.prepare(body)
    boxes.connect()
    boxes.cables[names.SOCKET_MOVE_MEMORY].stop_after(100_000)
    migrate(boxes, body)
    boxes.source.handler.wait_for(lambda d: d.move.total_bytes > 0)
    os.kill(boxes.source.qemu_pid, signal.SIGTERM)  # QEMU ends in an orderly way.
    over = boxes.source.handler.wait_for(lambda d: d.move.ended_us > 0)
    assert over.move.failed
    assert over.move.reason
    eventually(lambda: has_nothing(boxes.target))
    assert not any(d.state == pb.DOMAIN_STATE_RUNNING for d in boxes.target.handler.domains)
