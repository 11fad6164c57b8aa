"""How many sockets, cores and threads make up the vCPUs of an instance type."""

from __future__ import annotations

from dataclasses import dataclass

from virt_core.apis.preference import VirtualMachinePreferenceSpec
from virt_core.instancetype.conflicts import Conflict

SOCKETS, CORES, THREADS, SPREAD, ANY = "sockets", "cores", "threads", "spread", "any"
#: The older names, which manifests still use.
_OLD = {
    "preferSockets": SOCKETS,
    "preferCores": CORES,
    "preferThreads": THREADS,
    "preferSpread": SPREAD,
    "preferAny": ANY,
}
TOPOLOGIES = (SOCKETS, CORES, THREADS, SPREAD, ANY, *_OLD)

SOCKETS_CORES, SOCKETS_CORES_THREADS, CORES_THREADS = "SocketsCores", "SocketsCoresThreads", "CoresThreads"
SPREADS = (SOCKETS_CORES, SOCKETS_CORES_THREADS, CORES_THREADS)
#: What each spread is made of.
SPREAD_PARTS = {
    SOCKETS_CORES: (SOCKETS, CORES),
    SOCKETS_CORES_THREADS: (SOCKETS, CORES, THREADS),
    CORES_THREADS: (CORES, THREADS),
}
_DEFAULT_RATIO = 2
_THREADS_PER_CORE = 2
GUEST_FIELD = "instancetype.spec.cpu.guest"


@dataclass(frozen=True, slots=True)
class Topology:
    sockets: int = 1
    cores: int = 1
    threads: int = 1


def preferred(preference: VirtualMachinePreferenceSpec | None) -> str:
    """The topology that a preference asks for, by its current name."""
    wanted = preference.cpu.preferred_cpu_topology if preference is not None and preference.cpu is not None else None
    return _OLD.get(wanted or SOCKETS, wanted or SOCKETS)


def spread_options(preference: VirtualMachinePreferenceSpec | None) -> tuple[int, str]:
    """The ratio, and what the vCPUs are spread across."""
    ratio, across = 0, ""
    if preference is not None:
        ratio = preference.prefer_spread_socket_to_core_ratio
        options = preference.cpu.spread_options if preference.cpu is not None else None
        if options is not None:
            ratio, across = options.ratio or ratio, options.across or ""
    return ratio or _DEFAULT_RATIO, across or SOCKETS_CORES


def topology_of(vcpus: int, preference: VirtualMachinePreferenceSpec | None) -> Topology:
    """Exactly `vcpus` CPUs, where `spread_conflict` has nothing to say."""
    if vcpus <= 1:
        return Topology()
    match preferred(preference):
        case "cores":
            return Topology(cores=vcpus)
        case "threads":
            return Topology(threads=vcpus)
        case "spread":
            return _spread(vcpus, *spread_options(preference))
        case _:
            return Topology(sockets=vcpus)


def _spread(vcpus: int, ratio: int, across: str) -> Topology:
    if across == CORES_THREADS:
        return Topology(cores=vcpus // ratio, threads=ratio)
    if across == SOCKETS_CORES_THREADS:
        return Topology(sockets=vcpus // _THREADS_PER_CORE // ratio, cores=ratio, threads=_THREADS_PER_CORE)
    return Topology(sockets=vcpus // ratio, cores=ratio)


def spread_conflict(vcpus: int, preference: VirtualMachinePreferenceSpec | None) -> Conflict | None:
    """A spread must come out even."""
    if preferred(preference) != SPREAD:
        return None
    ratio, across = spread_options(preference)
    unit = ratio * _THREADS_PER_CORE if across == SOCKETS_CORES_THREADS else ratio
    if vcpus % unit == 0:
        return None
    words = f"its {vcpus} vCPUs cannot be spread across {across} in units of {unit} (ratio {ratio})"
    return Conflict(GUEST_FIELD, words)
