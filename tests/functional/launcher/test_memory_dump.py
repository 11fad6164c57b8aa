"""The memory of a real machine in a directory of its Pod, as libvirt and QEMU write it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from framework.elfcore import VGA_WINDOW, read_core

from tests.functional.launcher.sandbox import Sandbox, eventually
from tests.functional.launcher.vmis import request, vmi
from virt_core.apis.names import DIRECTORY_HOTPLUG, LAUNCHER_UID
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root

FILE = "vm1-dump-20260101-120000.memory.dump"


@pytest.fixture
def volumes(box: Sandbox, capability_cache: list[pb.CacheFile]) -> Iterator[Path]:
    """A running machine of 64 MiB, with room for its memory in `large` and none in `small`."""
    root = box.root / "private" / DIRECTORY_HOTPLUG
    for name, size in (("large", "200M"), ("small", "16M")):
        (root / name).mkdir(parents=True)
        options = f"size={size},uid={LAUNCHER_UID},gid={LAUNCHER_UID},mode=750"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", root / name], check=True)
    box.serve_notify()
    box.start()
    box.wait_ready()
    box.stub.SyncVMI(request(vmi(), capability_cache), timeout=30)
    yield root
    box.close()
    for name in ("large", "small"):
        subprocess.run(["umount", "--lazy", root / name], check=True)


def dumped(box: Sandbox, volume: str) -> pb.MemoryDump:
    box.stub.DumpMemory(pb.DumpMemoryRequest(volume=volume, file_name=FILE), timeout=20)
    ended = box.handler.wait_for(lambda d: d.memory_dump.volume == volume and d.memory_dump.ended_us > 0)
    return ended.memory_dump


def test_the_dump_is_a_core_with_all_memory(box: Sandbox, volumes: Path) -> None:
    dump = dumped(box, "large")
    assert (dump.failure, dump.file_name) == ("", FILE)
    core = read_core(volumes / "large" / FILE)
    assert {"CORE", "QEMU"} <= set(core.notes)
    assert core.lacks(64 << 20) == VGA_WINDOW
    # The machine goes on.
    eventually(lambda: box.stub.GetDomain(pb.GetDomainRequest()).domain.state == pb.DOMAIN_STATE_RUNNING)


def test_a_full_volume_is_named_and_left_clean(box: Sandbox, volumes: Path) -> None:
    dump = dumped(box, "small")
    assert "No space left on device" in dump.failure
    assert list((volumes / "small").iterdir()) == []
    eventually(lambda: box.stub.GetDomain(pb.GetDomainRequest()).domain.state == pb.DOMAIN_STATE_RUNNING)
    assert dumped(box, "large").failure == ""


def test_a_volume_that_is_not_there(box: Sandbox, volumes: Path) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        box.stub.DumpMemory(pb.DumpMemoryRequest(volume="none", file_name=FILE), timeout=20)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
