"""An instance type onto the spec of a VMI.

The instance type owns size and placement: what the author of the machine set as well is a conflict, and then nothing is
applied. Preferences come last and only fill in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from virt_core.apis.base import decode, encode
from virt_core.apis.domain import CPU, Memory
from virt_core.apis.instancetype import VirtualMachineInstancetypeSpec
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.preference import VirtualMachinePreferenceSpec
from virt_core.apis.quantity import format_bytes, parse_bytes
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.instancetype.conflicts import Conflict, taken
from virt_core.instancetype.preferences import apply_preference
from virt_core.instancetype.topology import spread_conflict, topology_of

S = TypeVar("S", bound=msgspec.Struct)

TEMPLATE_SPEC = "spec.template.spec"

Finder = Callable[[str, VirtualMachineInstanceSpec, VirtualMachineInstancetypeSpec], Iterator[Conflict]]
#: Fields of the CPU that only conflict when the instance type has an opinion, with their names in a path.
_CPU_OPTIONS = {
    "model": "model",
    "dedicated_cpu_placement": "dedicatedCPUPlacement",
    "isolate_emulator_thread": "isolateEmulatorThread",
    "numa": "numa",
    "realtime": "realtime",
}


def copy_of(value: S) -> S:
    """Deep: the instance type is shared, the machine is about to change."""
    return decode(encode(value), type(value))


def apply(
    spec: VirtualMachineInstanceSpec,
    metadata: ObjectMeta,
    instancetype: VirtualMachineInstancetypeSpec | None,
    preference: VirtualMachinePreferenceSpec | None,
    path: str = TEMPLATE_SPEC,
) -> list[Conflict]:
    """Changes spec and annotations in place; with conflicts it leaves both as they were."""
    if instancetype is not None:
        conflicts = find_conflicts(spec, metadata, instancetype, preference, path)
        if conflicts:
            return conflicts
        _apply_cpu(spec, instancetype, preference)
        _apply_memory(spec, instancetype)
        _apply_rest(spec, instancetype)
        metadata.annotations = {**instancetype.annotations, **metadata.annotations}
    if preference is not None:
        apply_preference(spec, metadata, copy_of(preference))
    return []


def find_conflicts(
    spec: VirtualMachineInstanceSpec,
    metadata: ObjectMeta,
    instancetype: VirtualMachineInstancetypeSpec,
    preference: VirtualMachinePreferenceSpec | None,
    path: str = TEMPLATE_SPEC,
) -> list[Conflict]:
    """All that stands in the way of the instance type."""
    found = [conflict for finder in _FINDERS for conflict in finder(path, spec, instancetype)]
    if spread := spread_conflict(instancetype.cpu.guest, preference):
        found.append(spread)
    for key, value in instancetype.annotations.items():
        if metadata.annotations.get(key, value) != value:
            found.append(Conflict(f"annotations.{key}", "the instance type sets another value"))
    return found


def _resources(path: str, spec: VirtualMachineInstanceSpec, _: VirtualMachineInstancetypeSpec) -> Iterator[Conflict]:
    for name in ("cpu", "memory"):
        if name in spec.domain.resources.requests:
            yield taken(path, "domain", "resources", "requests", name)
        if name in spec.domain.resources.limits:
            yield taken(path, "domain", "resources", "limits", name)


def _cpu(path: str, spec: VirtualMachineInstanceSpec, wanted: VirtualMachineInstancetypeSpec) -> Iterator[Conflict]:
    cpu = spec.domain.cpu
    if cpu is None:
        return
    for name in ("sockets", "cores", "threads"):
        if getattr(cpu, name):
            yield taken(path, "domain", "cpu", name)
    for attribute, name in _CPU_OPTIONS.items():
        mine = getattr(cpu, attribute)
        if mine is not None and mine not in ("", False) and getattr(wanted.cpu, attribute) is not None:
            yield taken(path, "domain", "cpu", name)


def _memory(path: str, spec: VirtualMachineInstanceSpec, wanted: VirtualMachineInstancetypeSpec) -> Iterator[Conflict]:
    memory = spec.domain.memory
    if memory is None:
        return
    if memory.guest is not None:
        yield taken(path, "domain", "memory", "guest")
    if memory.hugepages is not None and wanted.memory.hugepages is not None:
        yield taken(path, "domain", "memory", "hugepages")
    if memory.max_guest is not None and wanted.memory.max_guest is not None:
        yield taken(path, "domain", "memory", "maxGuest")


def _placement(
    path: str, spec: VirtualMachineInstanceSpec, wanted: VirtualMachineInstancetypeSpec
) -> Iterator[Conflict]:
    if wanted.node_selector and spec.node_selector:
        yield taken(path, "nodeSelector")
    if wanted.scheduler_name and spec.scheduler_name:
        yield taken(path, "schedulerName")


def _domain(path: str, spec: VirtualMachineInstanceSpec, wanted: VirtualMachineInstancetypeSpec) -> Iterator[Conflict]:
    domain = spec.domain
    if wanted.io_threads_policy is not None and domain.io_threads_policy is not None:
        yield taken(path, "domain", "ioThreadsPolicy")
    if wanted.io_threads is not None and domain.io_threads is not None:
        yield taken(path, "domain", "ioThreads")
    if wanted.launch_security is not None and domain.launch_security is not None:
        yield taken(path, "domain", "launchSecurity")
    if wanted.gpus and domain.devices.gpus:
        yield taken(path, "domain", "devices", "gpus")
    if wanted.host_devices and domain.devices.host_devices:
        yield taken(path, "domain", "devices", "hostDevices")


_FINDERS: tuple[Finder, ...] = (_placement, _cpu, _memory, _resources, _domain)


def _apply_cpu(
    spec: VirtualMachineInstanceSpec,
    wanted: VirtualMachineInstancetypeSpec,
    preference: VirtualMachinePreferenceSpec | None,
) -> None:
    cpu = spec.domain.cpu = spec.domain.cpu or CPU()
    given = copy_of(wanted.cpu)
    for attribute in (*_CPU_OPTIONS, "max_sockets"):
        value = getattr(given, attribute)
        if value is not None:
            setattr(cpu, attribute, value)
    topology = topology_of(given.guest, preference)
    cpu.sockets, cpu.cores, cpu.threads = topology.sockets, topology.cores, topology.threads


def _apply_memory(spec: VirtualMachineInstanceSpec, wanted: VirtualMachineInstancetypeSpec) -> None:
    given = copy_of(wanted.memory)
    memory = spec.domain.memory = spec.domain.memory or Memory()
    memory.guest = given.guest
    memory.hugepages = given.hugepages or memory.hugepages
    memory.max_guest = given.max_guest if given.max_guest is not None else memory.max_guest
    if given.overcommit_percent > 0:
        booked = parse_bytes(given.guest) * (100 - given.overcommit_percent) // 100
        resources = spec.domain.resources
        resources.requests = {**resources.requests, "memory": format_bytes(booked)}


def _apply_rest(spec: VirtualMachineInstanceSpec, wanted: VirtualMachineInstancetypeSpec) -> None:
    given, domain = copy_of(wanted), spec.domain
    spec.node_selector = given.node_selector or spec.node_selector
    spec.scheduler_name = given.scheduler_name or spec.scheduler_name
    domain.io_threads_policy = given.io_threads_policy or domain.io_threads_policy
    domain.io_threads = given.io_threads or domain.io_threads
    domain.launch_security = given.launch_security or domain.launch_security
    domain.devices.gpus = given.gpus or domain.devices.gpus
    domain.devices.host_devices = given.host_devices or domain.devices.host_devices
