"""Defaults of CPU and memory."""

from __future__ import annotations

from virt_core.apis.domain import CPU, Memory
from virt_core.apis.quantity import Quantity, QuantityError, format_bytes, parse_bytes, parse_int
from virt_core.apis.vmi import VirtualMachineInstanceSpec as Spec
from virt_core.kube.configvalues import ClusterConfig

_BUILT_IN_REQUEST = "100m"
_MIB = 1 << 20
_GIB = 1 << 30


def cpu_request(spec: Spec, config: ClusterConfig) -> None:
    """A limit alone is a request, too; else the cluster's own, if it has one."""
    resources, cpu = spec.domain.resources, spec.domain.cpu
    if "cpu" in resources.requests:
        return
    if "cpu" in resources.limits:
        resources.requests = {**resources.requests, "cpu": resources.limits["cpu"]}
    elif config.cpu_request != _BUILT_IN_REQUEST and not (cpu is not None and cpu.dedicated_cpu_placement):
        resources.requests = {**resources.requests, "cpu": config.cpu_request}


def guest_memory(spec: Spec, _: ClusterConfig) -> None:
    """The guest sees what was asked of the node, if nothing else is said."""
    memory, resources = spec.domain.memory, spec.domain.resources
    if memory is not None and memory.guest is not None:
        return
    pages = memory.hugepages.page_size if memory and memory.hugepages else None
    guest: Quantity | None = resources.requests.get("memory") or resources.limits.get("memory") or pages
    if guest:
        spec.domain.memory = memory or Memory()
        spec.domain.memory.guest = guest


def cpu_topology(spec: Spec, _: ClusterConfig) -> None:
    """No topology at all: as many sockets as CPUs were asked for, one by default. Nothing in a partial one means 1."""
    cpu = spec.domain.cpu = spec.domain.cpu or CPU()
    if cpu.cores or cpu.sockets or cpu.threads:
        return
    resources = spec.domain.resources
    wanted = resources.limits.get("cpu") or resources.requests.get("cpu")
    cpu.sockets = max(parse_int(wanted), 1) if wanted else 1
    cpu.cores = cpu.threads = 1


def max_sockets(spec: Spec, config: ClusterConfig) -> None:
    """Room for more sockets while running, as far as the number of vCPUs allows."""
    cpu = spec.domain.cpu
    if cpu is None or cpu.max_sockets or spec.architecture == "arm64" or not config.live_update:
        return
    if config.max_cpu_sockets is not None:
        cpu.max_sockets = max(config.max_cpu_sockets, cpu.sockets)
        return
    per_socket = max(cpu.cores, 1) * max(cpu.threads, 1)
    room = max(config.max_vcpus // per_socket, cpu.sockets)
    cpu.max_sockets = min(cpu.sockets * config.max_hotplug_ratio, room)


def max_guest(spec: Spec, config: ClusterConfig) -> None:
    """Room for more memory while running, where memory can be added at all."""
    memory = spec.domain.memory
    if memory is None or memory.guest is None or memory.max_guest is not None or not config.live_update:
        return
    if not _can_grow(spec, memory):
        return
    if config.max_guest is not None:
        memory.max_guest = config.max_guest if parse_bytes(config.max_guest) >= parse_bytes(memory.guest) else None
    else:
        memory.max_guest = format_bytes(parse_bytes(memory.guest) * config.max_hotplug_ratio)


def _can_grow(spec: Spec, memory: Memory) -> bool:
    cpu = spec.domain.cpu
    if spec.architecture != "amd64" or spec.domain.launch_security is not None:
        return False
    if cpu is not None and (cpu.realtime is not None or cpu.numa is not None):
        return False
    guest = parse_bytes(memory.guest or 0)
    return guest >= _GIB and guest % page_size(memory) == 0


def page_size(memory: Memory) -> int:
    """The step in which memory is added."""
    if memory.hugepages is None:
        return 2 * _MIB
    try:
        return _GIB if parse_bytes(memory.hugepages.page_size) == _GIB else 2 * _MIB
    except QuantityError:
        return 2 * _MIB  # The rule about huge pages names the mistake.
