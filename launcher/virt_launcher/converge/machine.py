"""The parts of a machine that are no devices: none but the number of processors can be changed while it runs. Pure.

libvirt rewrites much of what we declare here (the processor's model becomes a list of features, q35 a version of it).
So each row compares only what can be told from the running machine; all else of a VM's spec is compared by
virt-controller, which knows what the machine was started from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from virt_launcher.converge.changes import NeedsRestart
from virt_launcher.domain.codec import slots_of
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import Amount

_UNITS = {"b": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, None: 1 << 10}
_MIB = 1 << 20
#: How the versions of a machine type begin whose own name is another.
_VERSIONS = {"pc": "pc-i440fx-", "q35": "pc-q35-"}


def machine_differences(wanted: Domain, live: Domain) -> Iterator[NeedsRestart]:
    for field, agrees, what in _ROWS:
        if not agrees(wanted, live):
            yield NeedsRestart(field, f"{what} cannot change while the machine runs")


def _memory(wanted: Domain, live: Domain) -> bool:
    """In MiB: QEMU rounds up to them. What came later is a device, and libvirt counts it all in."""
    if wanted.memory is None or live.memory is None:
        return True
    return _mib(wanted.memory) == _mib(live.memory) - sum(_mib(m.size) for m in live.devices.memories if m.size)


def _mib(amount: Amount) -> int:
    return -(-(amount.value or 0) * _UNITS.get(amount.unit, 1) // _MIB)


def _page_size(wanted: Domain, live: Domain) -> bool:
    want, have = (d.memory_backing.pages if d.memory_backing is not None else [] for d in (wanted, live))
    return [page.size for page in want] == [page.size for page in have]


def _vcpus(wanted: Domain, live: Domain) -> bool:
    """More can come as long as there are sockets for them; none can go."""
    (want, room), (have, same) = processors(wanted), processors(live)
    return room == same and want >= have


def processors(domain: Domain) -> tuple[int, int]:
    """Those that run, and those that there could be."""
    if domain.vcpu is None:
        return 0, 0
    room = domain.vcpu.value or 0
    return domain.vcpu.current or room, room


def _topology(wanted: Domain, live: Domain) -> bool:
    return wanted.cpu is None or _declared(wanted.cpu, live.cpu, "sockets", "cores", "threads")


def _machine_type(wanted: Domain, live: Domain) -> bool:
    """`q35` became `pc-q35-7.2` when the machine was defined."""
    want, have = wanted.os.machine or "", live.os.machine or ""
    return want in ("", have) or have.startswith(_VERSIONS.get(want, f"{want}-"))


def _boot(wanted: Domain, live: Domain) -> bool:
    """Which files of the firmware libvirt would choose now, nobody but libvirt can tell."""
    firmware = () if wanted.os.firmware else ("loader", "loader_secure")
    names = (*firmware, "nvram", "kernel", "initrd", "cmdline", "bootmenu", "bios_useserial")
    return all((getattr(wanted.os, name) or None) == (getattr(live.os, name) or None) for name in names)


def _handed_over(wanted: Domain, live: Domain) -> bool:
    return wanted.os.acpi_tables == live.os.acpi_tables and wanted.arguments == live.arguments


def _features(wanted: Domain, live: Domain) -> bool:
    if wanted.features is None or live.features is None:
        return True
    plain = [slot.name for slot in slots_of(type(wanted.features)) if slot.name not in ("hyperv", "apic_eoi")]
    flags = wanted.features.acpi == live.features.acpi
    return flags and _declared(wanted.features, live.features, *plain)


def _clock(wanted: Domain, live: Domain) -> bool:
    return wanted.clock is None or _declared(wanted.clock, live.clock, "timezone")


def _reboot(wanted: Domain, live: Domain) -> bool:
    return wanted.on_reboot is None or wanted.on_reboot == live.on_reboot


def _threads(wanted: Domain, live: Domain) -> bool:
    return (wanted.iothreads or 0) <= (live.iothreads or 0)


def _serial(wanted: Domain, live: Domain) -> bool:
    return _entries(wanted, "serial", "uuid") == _entries(live, "serial", "uuid")


def _entries(domain: Domain, *names: str) -> dict[str | None, str | None]:
    system = domain.sysinfo.system if domain.sysinfo is not None else []
    return {entry.name: entry.value for entry in system if entry.name in names}


def _declared(wanted: Any, live: Any, *names: str) -> bool:
    """What we are silent about, or switched off by not naming it, is libvirt's choice."""
    asked = [name for name in names if getattr(wanted, name) not in (None, False)]
    return not asked or (live is not None and all(getattr(wanted, name) == getattr(live, name) for name in asked))


_ROWS: tuple[tuple[str, Callable[[Domain, Domain], bool], str], ...] = (
    ("spec.domain.memory.guest", _memory, "the guest's memory"),
    ("spec.domain.memory.hugepages", _page_size, "the size of the memory pages"),
    ("spec.domain.cpu.sockets", _vcpus, "the number of processors"),
    ("spec.domain.cpu", _topology, "the processor's topology"),
    ("spec.domain.machine.type", _machine_type, "the type of the machine"),
    ("spec.domain.firmware", _boot, "what the machine boots from"),
    ("spec.domain.firmware", _handed_over, "what the firmware hands to the guest"),
    ("spec.domain.firmware", _serial, "the machine's serial number and UUID"),
    ("spec.domain.features", _features, "the machine's features"),
    ("spec.domain.clock", _clock, "the machine's clock"),
    ("spec.domain.rebootPolicy", _reboot, "what a reboot means"),
    ("spec.domain.ioThreadsPolicy", _threads, "the number of IO threads"),
)
