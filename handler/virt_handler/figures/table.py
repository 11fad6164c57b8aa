"""A machine's statistics as metrics: the names, types and units that people's dashboards know. Pure.

A launcher may be in the hands of its guest: what is not a number is left out, and no list is longer than it may be.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PREFIX = "kubevirt_vmi_"
_MACHINE = ("node", "namespace", "name")
_NS = 1e-9
_KIB = 1024
MAX_DEVICES = 64
MAX_VCPUS = 512
MAX_STATS_BYTES = 1 << 20
_LIMIT = 1 << 64
_VCPU_STATES = {0: "offline", 1: "running", 2: "blocked"}


class Row(NamedTuple):
    """One metric: its name behind the prefix, the key of libvirt's value, what one of it is, and its sentence."""

    name: str
    key: str
    unit: float
    help: str
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


_CPU = (
    Row("cpu_usage_seconds_total", "time", _NS, "CPU time of the whole machine."),
    Row("cpu_user_usage_seconds_total", "user", _NS, "CPU time of the machine in user mode."),
    Row("cpu_system_usage_seconds_total", "system", _NS, "CPU time of the machine in kernel mode."),
)
_MEMORY = (
    Row("memory_resident_bytes", "rss", _KIB, "Memory of QEMU that is resident."),
    Row("memory_available_bytes", "available", _KIB, "Memory that the guest sees."),
    Row("memory_unused_bytes", "unused", _KIB, "Memory that the guest uses for nothing."),
    Row("memory_cached_bytes", "diskCaches", _KIB, "Memory in which the guest caches its disks."),
    Row("memory_usable_bytes", "usable", _KIB, "Memory that the guest could use without swapping."),
    Row("memory_domain_bytes", "maximum", _KIB, "Memory of the machine."),
    Row("memory_actual_balloon_bytes", "current", _KIB, "Memory that the balloon leaves to the guest."),
    Row("memory_swap_in_traffic_bytes", "swapIn", _KIB, "What the guest has read from its swap."),
    Row("memory_swap_out_traffic_bytes", "swapOut", _KIB, "What the guest has written to its swap."),
    Row("memory_pgmajfault_total", "majorFault", 1, "Page faults of the guest that had to read a disk."),
    Row("memory_pgminfault_total", "minorFault", 1, "Page faults of the guest that had not."),
)
_VCPU_TIME = Row("vcpu_seconds_total", "time", _NS, "CPU time of a vCPU.", ("id", "state"))
_VCPU = (
    Row("vcpu_wait_seconds_total", "wait", _NS, "Time that a vCPU waited for input or output.", ("id",)),
    Row("vcpu_delay_seconds_total", "delay", _NS, "Time that a vCPU waited for a CPU of the node.", ("id",)),
)
_DRIVE = ("drive",)
_STORAGE = (
    Row("storage_iops_read_total", "rdReqs", 1, "Reads of a disk.", _DRIVE),
    Row("storage_iops_write_total", "wrReqs", 1, "Writes to a disk.", _DRIVE),
    Row("storage_read_traffic_bytes_total", "rdBytes", 1, "Bytes read from a disk.", _DRIVE),
    Row("storage_write_traffic_bytes_total", "wrBytes", 1, "Bytes written to a disk.", _DRIVE),
    Row("storage_read_times_seconds_total", "rdTimes", _NS, "Time of the reads of a disk.", _DRIVE),
    Row("storage_write_times_seconds_total", "wrTimes", _NS, "Time of the writes to a disk.", _DRIVE),
    Row("storage_flush_requests_total", "flReqs", 1, "Flushes of a disk.", _DRIVE),
    Row("storage_flush_times_seconds_total", "flTimes", _NS, "Time of the flushes of a disk.", _DRIVE),
)
_NIC = ("interface",)
_NETWORK = (
    # libvirt counts at the TAP device, and says it as the guest sees it.
    Row("network_receive_bytes_total", "rxBytes", 1, "Bytes that the guest received.", _NIC),
    Row("network_receive_packets_total", "rxPkts", 1, "Packets that the guest received.", _NIC),
    Row("network_receive_errors_total", "rxErrs", 1, "Packets to the guest that failed.", _NIC),
    Row("network_receive_packets_dropped_total", "rxDrop", 1, "Packets to the guest that were dropped.", _NIC),
    Row("network_transmit_bytes_total", "txBytes", 1, "Bytes that the guest sent.", _NIC),
    Row("network_transmit_packets_total", "txPkts", 1, "Packets that the guest sent.", _NIC),
    Row("network_transmit_errors_total", "txErrs", 1, "Packets of the guest that failed.", _NIC),
    Row("network_transmit_packets_dropped_total", "txDrop", 1, "Packets of the guest that were dropped.", _NIC),
)
_FILESYSTEM = ("disk_name", "mount_point", "file_system_type")
CAPACITY = Row("filesystem_capacity_bytes", "", 1, "Size of a filesystem of the guest.", _FILESYSTEM)
USED = Row("filesystem_used_bytes", "", 1, "What a filesystem of the guest holds.", _FILESYSTEM)
DIRTY_RATE = Row("dirty_rate_bytes_per_second", "", 1, "How fast the guest changes its memory.")
_MOVE = (
    Row("migration_data_bytes_total", "total_bytes", 1, "What there is to move to the other node."),
    Row("migration_data_remaining_bytes", "remaining_bytes", 1, "What has not been moved yet."),
    Row("migration_data_processed_bytes", "processed_bytes", 1, "What has been moved."),
    Row("migration_dirty_memory_rate_bytes", "dirty_bytes_per_second", 1, "How fast the guest writes while it moves."),
    Row("migration_memory_transfer_rate_bytes", "bytes_per_second", 1, "How fast the machine is being moved."),
)

ROWS = (*_CPU, *_MEMORY, _VCPU_TIME, *_VCPU, *_STORAGE, *_NETWORK, CAPACITY, USED, DIRTY_RATE, *_MOVE)


@dataclass(frozen=True, slots=True)
class Figures:
    """What was found out about one machine."""

    namespace: str
    name: str
    stats: Mapping[str, Any]
    #: The volume by its target, the interface by its TAP device.
    drives: Mapping[str, str] = field(default_factory=dict)
    nics: Mapping[str, str] = field(default_factory=dict)
    #: disk, mount point, type, used bytes, size
    filesystems: tuple[tuple[str, str, str, int, int], ...] = ()
    dirty_rate: int | None = None
    #: Of a move that is under way, by the names of launcher/v1.
    move: Mapping[str, int] | None = None


Sample = tuple[Row, tuple[str, ...], float]


def samples(node: str, found: Figures) -> Iterator[Sample]:
    """Every sample of one machine, with the values of all its labels."""
    machine = (node, found.namespace, found.name)
    yield from _group(machine, _CPU, _object(found.stats.get("cpu")))
    yield from _group(machine, _MEMORY, _object(found.stats.get("memory")))
    for vcpu in _list(found.stats.get("vcpu"), MAX_VCPUS):
        number = (*machine, str(vcpu.get("index", "")))
        yield from _group((*number, _VCPU_STATES.get(vcpu.get("state", -1), "unknown")), (_VCPU_TIME,), vcpu)
        yield from _group(number, _VCPU, vcpu)
    yield from _devices(machine, _STORAGE, found.stats.get("block"), found.drives)
    yield from _devices(machine, _NETWORK, found.stats.get("net"), found.nics)
    for *labels, used, total in found.filesystems[:MAX_DEVICES]:
        yield USED, (*machine, *map(str, labels)), float(used)
        yield CAPACITY, (*machine, *map(str, labels)), float(total)
    if found.dirty_rate is not None:
        yield DIRTY_RATE, machine, float(found.dirty_rate)
    yield from _group(machine, _MOVE, found.move or {})


def label_names(row: Row) -> tuple[str, ...]:
    return (*_MACHINE, *row.labels)


def _devices(machine: tuple[str, ...], rows: Iterable[Row], listed: Any, known: Mapping[str, str]) -> Iterator[Sample]:
    """Of devices that the VMI has only, each once: a label is no place for what a launcher makes up."""
    told: set[str] = set()
    for device in _list(listed, MAX_DEVICES):
        name = known.get(str(device.get("name", "")))
        if name is not None and name not in told:
            told.add(name)
            yield from _group((*machine, name), rows, device)


def _group(labels: tuple[str, ...], rows: Iterable[Row], values: Mapping[str, Any]) -> Iterator[Sample]:
    for row in rows:
        value = values.get(row.key)
        if type(value) is int and 0 <= value < _LIMIT:
            yield row, labels, value * row.unit


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any, limit: int) -> list[Mapping[str, Any]]:
    return [each for each in value[:limit] if isinstance(each, dict)] if isinstance(value, list) else []


def parsed(stats_json: bytes) -> dict[str, Any]:
    """A launcher's statistics; empty when they are none."""
    if len(stats_json) > MAX_STATS_BYTES:
        return {}
    try:
        found = json.loads(stats_json or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
