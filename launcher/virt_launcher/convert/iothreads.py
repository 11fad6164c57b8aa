"""Threads of their own for the IO of disks: a common pool, one for each virtio disk that asks, one for all of SCSI."""

from __future__ import annotations

from virt_core.apis import names
from virt_core.apis.owncpus import isolates_emulator
from virt_launcher.convert.context import Context
from virt_launcher.convert.cpu import topology_of
from virt_launcher.domain.disks import Disk, IOThreadRef
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError

#: libvirt that lets one disk use several threads.
_MAPPING_SINCE = 10_000_000
_POLICIES = ("shared", "auto", names.IO_THREADS_POOL)


def configure_iothreads(context: Context, domain: Domain) -> None:
    """After the disks: each virtio disk is given its thread."""
    policy = context.vmi.spec.domain.io_threads_policy
    if policy and policy not in _POLICIES:
        raise InvalidVMIError("spec.domain.ioThreadsPolicy", f"{policy!r} is not one of {', '.join(_POLICIES)}")
    virtio = [disk for disk in domain.devices.disks if disk.bus == "virtio"]
    dedicated = [disk for disk in virtio if _asks(context, disk)]
    shared = [disk for disk in virtio if disk not in dedicated]
    if not policy and not dedicated:
        return
    pool = _pool_size(context, policy, len(shared), len(dedicated))
    _assign_pool(context, policy, shared, pool)
    for number, disk in enumerate(dedicated, start=pool + 1):
        disk.iothread = number
    domain.iothreads = pool + len(dedicated)


def configure_scsi_thread(context: Context, domain: Domain) -> None:
    """After the controllers: SCSI disks share theirs, so one that asks for a thread gets it for all."""
    if not any(disk.bus == "scsi" and _asks(context, disk) for disk in domain.devices.disks):
        return
    domain.iothreads = (domain.iothreads or 0) + 1
    for controller in domain.devices.controllers:
        if controller.type == "scsi":
            controller.iothread, controller.queues = domain.iothreads, topology_of(context).vcpus


def _asks(context: Context, disk: Disk) -> bool:
    own = {d.name for d in context.vmi.spec.domain.devices.disks if d.dedicated_io_thread}
    return (disk.alias or "").removeprefix("ua-") in own


def _pool_size(context: Context, policy: str | None, shared: int, dedicated: int) -> int:
    if policy == names.IO_THREADS_POOL:
        threads = context.vmi.spec.domain.io_threads
        count = threads.supplemental_pool_thread_count if threads is not None else None
        if not count or count < 1:
            raise InvalidVMIError("spec.domain.ioThreads.supplementalPoolThreadCount", "must be at least 1")
        return count
    if dedicated and not shared:
        return 0  # Each disk has a thread of its own.
    if policy == "auto" and not isolates_emulator(context.vmi):
        # Never more threads than twice the CPUs, and at least one for the disks without their own.
        return max(min(2 * topology_of(context).vcpus - dedicated, shared), 1)
    return 1


def _assign_pool(context: Context, policy: str | None, shared: list[Disk], pool: int) -> None:
    if policy == names.IO_THREADS_POOL and context.libvirt_version >= _MAPPING_SINCE:
        for disk in shared:
            disk.iothreads = [IOThreadRef(id=number) for number in range(1, pool + 1)]
        return
    for index, disk in enumerate(shared):
        disk.iothread = index % pool + 1
