"""What a preference demands of the machine: vCPUs, memory, architecture."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from virt_core.apis.domain import CPU
from virt_core.apis.instancetype import VirtualMachineInstancetypeSpec
from virt_core.apis.preference import VirtualMachinePreferenceSpec
from virt_core.apis.quantity import parse_quantity
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.instancetype.conflicts import Conflict
from virt_core.instancetype.topology import (
    ANY,
    CORES,
    SOCKETS,
    SPREAD,
    SPREAD_PARTS,
    THREADS,
    preferred,
    spread_options,
)

#: Clients compare this, and the words of `_insufficient`.
UNMET = "failure checking preference requirements"
_BY_TYPE, _BY_VM = "instance type", "VirtualMachine"
_INSTANCETYPE = "spec.instancetype"
_SPEC = "spec.template.spec"
_CPU = f"{_SPEC}.domain.cpu"


def unmet_requirements(
    spec: VirtualMachineInstanceSpec,
    instancetype: VirtualMachineInstancetypeSpec | None,
    preference: VirtualMachinePreferenceSpec | None,
) -> list[Conflict]:
    """The spec is the VM's own, before the instance type is applied."""
    needs = preference.requirements if preference is not None else None
    if preference is None or needs is None:
        return []
    found: list[Conflict] = []
    if needs.cpu is not None:
        found += _cpu(spec, instancetype, preference, needs.cpu.guest)
    if needs.memory is not None:
        found += _memory(spec, instancetype, needs.memory.guest)
    if needs.architecture is not None and spec.architecture != needs.architecture:
        words = f"the preference needs the architecture {needs.architecture}, not {spec.architecture or 'the default'}"
        found.append(_unmet(f"{_SPEC}.architecture", words))
    return found


def _unmet(field: str, message: str) -> Conflict:
    return Conflict(field, f"{UNMET}: {message}", unmet=True)


def _insufficient(what: str, have: object, by: str, needed: object) -> str:
    return f"insufficient {what} resources of {have} provided by {by}, preference requires {needed}"


def _cpu(
    spec: VirtualMachineInstanceSpec,
    instancetype: VirtualMachineInstancetypeSpec | None,
    preference: VirtualMachinePreferenceSpec,
    needed: int,
) -> Iterator[Conflict]:
    if instancetype is not None:
        if instancetype.cpu.guest < needed:
            words = _insufficient("CPU", f"{instancetype.cpu.guest} vCPU", _BY_TYPE, f"{needed} vCPU")
            yield _unmet(_INSTANCETYPE, words)
        return
    if spec.domain.cpu is None:
        yield _unmet(_CPU, _insufficient("CPU", "0 vCPU", _BY_VM, f"{needed} vCPU"))
        return
    parts = _parts(preference)
    have = prod(_part(spec.domain.cpu, name) for name in parts)
    if have < needed:
        words = _insufficient("CPU", f"{have} vCPU", _BY_VM, f"{needed} vCPU as {' and '.join(parts)}")
        yield from (_unmet(f"{_CPU}.{name}", words) for name in parts)


def _parts(preference: VirtualMachinePreferenceSpec) -> tuple[str, ...]:
    """The fields whose product counts."""
    topology = preferred(preference)
    if topology == SPREAD:
        return SPREAD_PARTS.get(spread_options(preference)[1], (SOCKETS, CORES))
    return (CORES, SOCKETS, THREADS) if topology == ANY else (topology,)


def _part(cpu: CPU, name: str) -> int:
    value: int = getattr(cpu, name)
    return value


def _memory(
    spec: VirtualMachineInstanceSpec, instancetype: VirtualMachineInstancetypeSpec | None, needed: str | int | float
) -> Iterator[Conflict]:
    if instancetype is not None:
        if parse_quantity(instancetype.memory.guest) < parse_quantity(needed):
            words = _insufficient("Memory", instancetype.memory.guest, _BY_TYPE, needed)
            yield _unmet(_INSTANCETYPE, words)
        return
    guest = spec.domain.memory.guest if spec.domain.memory is not None else None
    if guest is not None and parse_quantity(guest) < parse_quantity(needed):
        yield _unmet(f"{_SPEC}.domain.memory", _insufficient("Memory", guest, _BY_VM, needed))
