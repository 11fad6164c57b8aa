"""Rules about the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from virt_api.admission.causes import Cause, invalid, not_supported, one_of, required
from virt_api.admission.rules.base import Check
from virt_core.apis.domain import CPU
from virt_core.apis.quantity import Quantity, parse_quantity
from virt_core.apis.realtime import is_mask

MAX_VCPUS = (1 << 31) - 1
FEATURE_POLICIES = ("", "force", "require", "optional", "disable", "forbid")


def vcpu_count(check: Check) -> Iterator[Cause]:
    """A number that only no node has is the scheduler's to refuse: clients wait for Unschedulable."""
    count = _vcpus(check.spec.domain.cpu)
    if count > MAX_VCPUS:
        yield invalid(f"{check.domain}.cpu", f"{count} vCPUs are too many: at most {MAX_VCPUS} can be given")


def sockets(check: Check) -> Iterator[Cause]:
    cpu = check.spec.domain.cpu
    if cpu is not None and cpu.max_sockets and cpu.sockets > cpu.max_sockets:
        yield invalid(f"{check.domain}.cpu.sockets", "must not exceed maxSockets")


def feature_policies(check: Check) -> Iterator[Cause]:
    cpu = check.spec.domain.cpu
    for i, feature in enumerate(cpu.features if cpu else []):
        if feature.policy not in FEATURE_POLICIES:
            yield not_supported(f"{check.domain}.cpu.features[{i}].policy", one_of(feature.policy, FEATURE_POLICIES))


def isolated_emulator(check: Check) -> Iterator[Cause]:
    cpu = check.spec.domain.cpu
    if cpu is not None and cpu.isolate_emulator_thread and not cpu.dedicated_cpu_placement:
        yield invalid(f"{check.domain}.cpu.isolateEmulatorThread", "needs dedicatedCpuPlacement")


def numa(check: Check) -> Iterator[Cause]:
    cpu, memory = check.spec.domain.cpu, check.spec.domain.memory
    if cpu is None or cpu.numa is None or cpu.numa.guest_mapping_passthrough is None:
        return
    field = f"{check.domain}.cpu.numa.guestMappingPassthrough"
    if not cpu.dedicated_cpu_placement:
        yield invalid(field, "needs dedicatedCpuPlacement")
    if memory is None or memory.hugepages is None:
        yield invalid(field, "needs memory.hugepages")


def realtime(check: Check) -> Iterator[Cause]:
    cpu = check.spec.domain.cpu
    if cpu is None or cpu.realtime is None:
        return
    field = f"{check.domain}.cpu.realtime"
    if not cpu.dedicated_cpu_placement:
        yield required(f"{check.domain}.cpu.dedicatedCpuPlacement", f"must be given, because {field} needs it")
    if cpu.numa is None or cpu.numa.guest_mapping_passthrough is None:
        yield required(f"{check.domain}.cpu.numa.guestMappingPassthrough", f"must be given, because {field} needs it")
    if not is_mask(cpu.realtime.mask):
        yield invalid(f"{field}.mask", "must be numbers of vCPUs and ranges of them, like 0-3,^1")


def dedicated_placement(check: Check) -> Iterator[Cause]:
    """A CPU of its own for each vCPU: the counts must be whole and must agree."""
    cpu = check.spec.domain.cpu
    if cpu is None or not cpu.dedicated_cpu_placement:
        return
    resources = check.spec.domain.resources
    root = f"{check.domain}.resources"
    for kind, values in (("requests", resources.requests), ("limits", resources.limits)):
        if "cpu" in values and not _is_whole(values["cpu"]):
            yield invalid(f"{root}.{kind}.cpu", "must be a whole number when CPUs are dedicated")
    yield from _agreeing_counts(check, cpu)
    yield from _threads(check, cpu)


def _agreeing_counts(check: Check, cpu: CPU) -> Iterator[Cause]:
    resources = check.spec.domain.resources
    field = f"{check.domain}.cpu.dedicatedCpuPlacement"
    asked, limit = resources.requests.get("cpu"), resources.limits.get("cpu")
    memory_asked, memory_limit = resources.requests.get("memory"), resources.limits.get("memory")
    if memory_asked and memory_limit and parse_quantity(memory_asked) != parse_quantity(memory_limit):
        yield invalid(f"{check.domain}.resources.requests.memory", "must equal limits.memory when CPUs are dedicated")
    if asked and limit and parse_quantity(asked) != parse_quantity(limit):
        yield invalid(field, "requests.cpu and limits.cpu must be equal when CPUs are dedicated")
    count = _vcpus(cpu)
    given = asked or limit
    if given and _is_whole(given) and parse_quantity(given) != count:
        yield invalid(field, f"requests.cpu or limits.cpu must equal the number of vCPUs, {count}")


def _threads(check: Check, cpu: CPU) -> Iterator[Cause]:
    if check.spec.architecture == "arm64" and cpu.threads > 1:
        yield invalid(
            f"{check.path}.architecture", "arm64 has no CPU threads: cpu.threads must be 1 when CPUs are dedicated"
        )
    elif cpu.threads > 2:
        yield invalid(
            f"{check.domain}.cpu.dedicatedCpuPlacement", "cpu.threads must be at most 2 when CPUs are dedicated"
        )


def _vcpus(cpu: CPU | None) -> int:
    return max(cpu.cores, 1) * max(cpu.sockets, 1) * max(cpu.threads, 1) if cpu else 1


def _is_whole(quantity: Quantity) -> bool:
    value = parse_quantity(quantity)
    return value == value.to_integral_value()
