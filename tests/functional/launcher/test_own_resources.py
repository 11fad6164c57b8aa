"""CPUs and memory that a machine has to itself, as the kernel sees QEMU use them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.functional.handler.test_realtime import needs_real_time
from tests.functional.launcher.sandbox import Sandbox
from tests.functional.launcher.vmis import request, vmi
from virt_core.apis.base import from_plain
from virt_core.apis.vmi import VirtualMachineInstance
from virt_handler.pods.realtime import give_priority
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root
Cache = list[pb.CacheFile]
PAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
OWN = {"dedicatedCpuPlacement": True, "cores": 1}
TWO = sorted(os.sched_getaffinity(0))[:2]
needs_two = pytest.mark.skipif(len(TWO) < 2, reason="needs two CPUs")


def started(box: Sandbox, cache: Cache, body: dict[str, Any], **how: Any) -> None:
    box.serve_notify()
    box.start(**how)
    box.wait_ready()
    answer = box.stub.SyncVMI(request(body, cache), timeout=60)
    assert answer.domain.state == pb.DOMAIN_STATE_RUNNING


def affinity(box: Sandbox, thread: str) -> list[set[int]]:
    """The CPUs of QEMU's threads with such names, by their names."""
    tasks = {(task / "comm").read_text().strip(): int(task.name) for task in _tasks(box)}
    return [os.sched_getaffinity(tid) for name, tid in sorted(tasks.items()) if re.match(thread, name)]


def _tasks(box: Sandbox) -> list[Path]:
    return list(Path(f"/proc/{box.qemu_pid}/task").iterdir())


@needs_two
def test_each_vcpu_runs_on_a_cpu_of_its_own(box: Sandbox, capability_cache: Cache) -> None:
    started(box, capability_cache, vmi(cpu=OWN | {"cores": 2}), cpus=TWO)
    vcpus = affinity(box, r"CPU \d+/")
    assert sorted(vcpus, key=min) == [{TWO[0]}, {TWO[1]}]


@needs_two
def test_the_only_cpu_of_the_pod_is_the_vcpus(box: Sandbox, capability_cache: Cache) -> None:
    started(box, capability_cache, vmi(cpu=OWN), cpus=TWO[1:])
    assert affinity(box, r"CPU \d+/") == [{TWO[1]}]


@needs_two
def test_the_emulator_and_io_leave_the_vcpu_alone(box: Sandbox, capability_cache: Cache) -> None:
    devices = {"disks": [{"name": "a", "disk": {"bus": "virtio"}}]}
    body = vmi(cpu=OWN | {"isolateEmulatorThread": True}, ioThreadsPolicy="shared", devices=devices)
    body["spec"]["volumes"] = [{"name": "a", "emptyDisk": {"capacity": "1Mi"}}]
    started(box, capability_cache, body, cpus=TWO)
    ((vcpu,),) = affinity(box, r"CPU \d+/")
    assert vcpu in TWO
    rest = {*TWO} - {vcpu}
    assert os.sched_getaffinity(box.qemu_pid) == rest
    assert affinity(box, "IO iothread1") == [rest]


@needs_two
@pytest.mark.parametrize(("cpus", "cores"), [(TWO, 1), (TWO[:1], 2)], ids=["others-too", "too-few"])
def test_a_pod_without_just_its_own_cpus_starts_nothing(
    box: Sandbox, capability_cache: Cache, cpus: list[int], cores: int
) -> None:
    box.serve_notify()
    box.start(cpus=cpus)
    box.wait_ready()
    with pytest.raises(grpc.RpcError, match=r"spec\.domain\.cpu\.dedicatedCpuPlacement: the machine needs") as caught:
        box.stub.SyncVMI(request(vmi(cpu=OWN | {"cores": cores}), capability_cache), timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert box.descendants("qemu-system") == []


@pytest.fixture
def reserved() -> Iterator[None]:
    """Huge pages for a guest, given back in the end."""
    before = int(PAGES.read_text()) if PAGES.exists() else -1
    try:
        if before >= 0:
            PAGES.write_text(str(before + 32))
        if before < 0 or int(PAGES.read_text()) < before + 32:
            pytest.skip("the kernel has no room for huge pages")
        yield
    finally:
        if before >= 0:
            PAGES.write_text(str(before))


@pytest.mark.usefixtures("reserved")
@pytest.mark.parametrize("mounted", [False, True], ids=["memfd", "file"])
def test_the_guests_memory_lies_in_huge_pages(box: Sandbox, capability_cache: Cache, mounted: bool) -> None:
    body = vmi(memory={"guest": "64Mi", "hugepages": {"pageSize": "2Mi"}})
    body["metadata"]["annotations"] = {"kubevirt.io/memfd": "false"} if mounted else {}
    started(box, capability_cache, body, huge_pages=mounted)
    memory = box.memory(box.qemu_pid)
    assert memory["Shared_Hugetlb"] + memory["Private_Hugetlb"] == 64 << 10


@needs_two
@pytest.mark.usefixtures("reserved")
def test_memory_of_a_guest_that_sees_the_cells_is_bound_to_them(box: Sandbox, capability_cache: Cache) -> None:
    cpu = OWN | {"cores": 2, "numa": {"guestMappingPassthrough": {}}}
    memory = {"guest": "64Mi", "hugepages": {"pageSize": "2Mi"}}
    started(box, capability_cache, vmi(cpu=cpu, memory=memory), cpus=TWO)
    cells = {entry.name for cpu in TWO for entry in Path(f"/sys/devices/system/cpu/cpu{cpu}").glob("node*")}
    areas = [line.split() for line in Path(f"/proc/{box.qemu_pid}/numa_maps").read_text().splitlines()]
    guest = [area for area in areas if "huge" in area]
    assert {area[1] for area in guest} == {f"bind:{cell.removeprefix('node')}" for cell in cells}
    pages = [int(word.split("=")[1]) for area in guest for word in area if re.match(r"N\d+=", word)]
    assert sum(pages) == 32


@needs_two
@needs_real_time
@pytest.mark.usefixtures("reserved")
def test_vcpus_of_a_real_time_machine_go_first_and_nothing_else_does(box: Sandbox, capability_cache: Cache) -> None:
    """The launcher starts the machine without a right to that; virt-handler gives it, from outside."""
    cpu = OWN | {"cores": 2, "numa": {"guestMappingPassthrough": {}}, "realtime": {"mask": "1"}}
    body = vmi(cpu=cpu, memory={"guest": "64Mi", "hugepages": {"pageSize": "2Mi"}})
    started(box, capability_cache, body, cpus=TWO)
    pidfd = os.pidfd_open(box.pid)
    try:
        give_priority(box.pid, pidfd, from_plain(body, VirtualMachineInstance))
    finally:
        os.close(pidfd)
    first = {task.name: (task / "comm").read_text() for task in _tasks(box) if os.sched_getscheduler(int(task.name))}
    assert [name.split("/")[0] for name in first.values()] == ["CPU 1"]
    assert os.sched_getscheduler(int(*first)) & os.SCHED_FIFO
    assert os.sched_getscheduler(box.pid) == os.SCHED_OTHER


def test_a_node_without_huge_pages_says_so(box: Sandbox, capability_cache: Cache) -> None:
    box.serve_notify()
    box.start()
    box.wait_ready()
    body = vmi(memory={"guest": "1Ti", "hugepages": {"pageSize": "2Mi"}})
    with pytest.raises(grpc.RpcError, match=r"QEMU did not start: .*memory"):
        box.stub.SyncVMI(request(body, capability_cache), timeout=60)
    assert box.descendants("qemu-system") == []
