"""A real machine that gets processors and memory while it runs: libvirt and QEMU take them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.functional.launcher.sandbox import Sandbox
from tests.functional.launcher.vmis import request, vmi
from virt_launcher.domain.domain import from_xml
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root
Cache = list[pb.CacheFile]


def sized(sockets: int, guest: str, most: int = 3) -> dict[str, Any]:
    body = vmi(cpu={"sockets": sockets, "cores": 2, "maxSockets": most}, memory={"guest": guest, "maxGuest": "4Gi"})
    return body | {"status": {"memory": {"guestAtBoot": "1Gi"}}}


def sync(box: Sandbox, cache: Cache, body: dict[str, Any], digest: str) -> pb.SyncVMIResponse:
    message = request(body, cache)
    message.digest = digest
    return box.stub.SyncVMI(message, timeout=60)


def memory_devices(box: Sandbox) -> list[int]:
    """MiB that are requested of each."""
    live = from_xml(box.virsh("dumpxml", "ns_vm1"))
    return [(device.requested.value or 0) >> 10 for device in live.devices.memories if device.requested is not None]


@pytest.fixture
def running(box: Sandbox, capability_cache: Cache) -> Sandbox:
    box.serve_notify()
    box.start()
    box.wait_ready()
    answer = sync(box, capability_cache, sized(1, "1Gi"), "first")
    assert (answer.domain.processors, answer.domain.memory_bytes) == (2, 1 << 30)
    return box


def test_nobody_changed_it(running: Sandbox, capability_cache: Cache) -> None:
    answer = sync(running, capability_cache, sized(1, "1Gi"), "again")
    assert list(answer.synced.needs_restart) == []
    assert memory_devices(running) == []
    assert "a device was changed" not in running.log.read_text()


def test_processors_come(running: Sandbox, capability_cache: Cache) -> None:
    answer = sync(running, capability_cache, sized(3, "1Gi"), "more")
    assert (answer.domain.processors, list(answer.synced.needs_restart)) == (6, [])
    running.handler.wait_for(lambda domain: domain.processors == 6)
    fewer = sync(running, capability_cache, sized(2, "1Gi"), "fewer")
    assert (fewer.domain.processors, [n.field for n in fewer.synced.needs_restart]) == (6, ["spec.domain.cpu.sockets"])


def test_memory_comes_and_goes(running: Sandbox, capability_cache: Cache) -> None:
    """What the firmware has of it stays as it is: it does not know such a device."""
    for guest, asked in (("2Gi", 1024), ("4Gi", 3072), ("1Gi", 0)):
        answer = sync(running, capability_cache, sized(1, guest), guest)
        assert (answer.synced.digest, list(answer.synced.needs_restart)) == (guest, [])
        assert memory_devices(running) == [asked]
        assert answer.domain.memory_bytes == 1 << 30
