"""A VM whose spec changed while its VMI runs: what reaches the VMI now, and what must wait for a restart. Pure.

The spec that the VMI was started from is compared with today's, both with instance type and preference applied. What
can be changed in a running machine is taken out of the comparison and looked at piece by piece. Whether a piece can be
changed at all says the table of supported features; what cannot is left to a restart, and the VMI stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from virt_controller.vm import facts, links
from virt_core.apis import names
from virt_core.apis.base import to_plain
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.quantity import parse_bytes
from virt_core.apis.support.cluster import HOTPLUG_CPU, HOTPLUG_MEMORY, HOTPLUG_VOLUMES, LIVE_MIGRATION
from virt_core.apis.support.table import TODAY, Support
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.apis.volumes import Volume
from virt_core.kube.conditions import is_true
from virt_core.kube.patch import op, pointer

_PLACEMENT = ("nodeSelector", "affinity", "tolerations")
_MAX_PATHS = 5


@dataclass(slots=True)
class Update:
    """Operations on the VMI, why a restart is needed, and whether something must wait for another change to end."""

    operations: list[dict[str, Any]] = field(default_factory=list)
    restart: list[str] = field(default_factory=list)
    waits: bool = False

    @property
    def message(self) -> str:
        return f"a restart is needed: {'; '.join(self.restart)}" if self.restart else ""


@dataclass(frozen=True, slots=True)
class Change:
    started: VirtualMachineInstanceSpec
    wanted: VirtualMachineInstanceSpec
    vmi: VirtualMachineInstance
    generation: int
    live: bool = True
    #: The template's labels or annotations differ. They reach the next VMI; this one stays what it was made from.
    relabelled: bool = False
    support: Support = TODAY

    def follows(self, what: str) -> bool:
        """Whether a running machine takes this over without a restart."""
        return self.live and self.support.is_built(what)


def update(change: Change) -> Update:
    result = Update()
    if change.support.is_built(HOTPLUG_VOLUMES):
        _hotplug_volumes(change, result)
    for what, follow in ((HOTPLUG_CPU, _sockets), (HOTPLUG_MEMORY, _memory), (LIVE_MIGRATION, _placement)):
        if change.follows(what):
            follow(change, result)
    before, after = _comparable(change, change.started), _comparable(change, change.wanted)
    if paths := list(_different(before, after, to_plain(change.vmi.spec), "spec.template.spec")):
        shown = ", ".join(paths[:_MAX_PATHS]) + (" and others" if len(paths) > _MAX_PATHS else "")
        result.restart.append(f"{shown} changed")
    result.operations += links.operations(change.wanted, change.vmi)
    if not result.restart and not result.waits and not change.relabelled:
        path = pointer("metadata", "annotations", names.ANNOTATION_VM_GENERATION)
        result.operations.append(op.add(path, str(change.generation)))
    return result


def _busy(vmi: VirtualMachineInstance) -> bool:
    conditions = vmi.status.conditions
    hot = (names.CONDITION_HOT_VCPU_CHANGE, names.CONDITION_HOT_MEMORY_CHANGE)
    return facts.is_migrating(vmi) or any(is_true(conditions, type) for type in hot)


def _sockets(change: Change, result: Update) -> None:
    cpu, running = change.wanted.domain.cpu, change.vmi.spec.domain.cpu
    if cpu is None or running is None:
        return
    want, have = cpu.sockets or 1, running.sockets or 1
    if want == have:
        return
    if want < have:
        result.restart.append(f"CPU sockets cannot be reduced from {have} to {want} in a running machine")
    elif change.vmi.spec.architecture == "arm64" or want > running.max_sockets:
        result.restart.append(f"{want} CPU sockets are more than the running machine can have ({running.max_sockets})")
    elif _busy(change.vmi):
        result.waits = True
    else:
        result.operations.append(op.replace("/spec/domain/cpu/sockets", want))


def _memory(change: Change, result: Update) -> None:
    memory, running = change.wanted.domain.memory, change.vmi.spec.domain.memory
    if memory is None or memory.guest is None or running is None or running.guest is None:
        return
    want, have = parse_bytes(memory.guest), parse_bytes(running.guest)
    if want == have:
        return
    status = change.vmi.status.memory
    boot = parse_bytes(status.guest_at_boot) if status is not None and status.guest_at_boot is not None else have
    most = parse_bytes(running.max_guest) if running.max_guest is not None else 0
    if not is_true(change.vmi.status.conditions, names.CONDITION_LIVE_MIGRATABLE):
        result.restart.append("the guest's memory can only be changed in a machine that can migrate")
    elif want < boot or want > most:
        result.restart.append(f"the guest's memory must be from what it booted with to {running.max_guest or 'that'}")
    elif _busy(change.vmi):
        result.waits = True
    else:
        result.operations.append(op.replace("/spec/domain/memory/guest", memory.guest))


def _placement(change: Change, result: Update) -> None:
    started, wanted = to_plain(change.started), to_plain(change.wanted)
    running = to_plain(change.vmi.spec)
    for key in _PLACEMENT:
        value = wanted.get(key)
        if value == started.get(key) or value == running.get(key):
            continue
        if value is not None:
            result.operations.append(op.add(pointer("spec", key), value))
        elif key in running:
            result.operations.append(op.remove(pointer("spec", key)))


def is_hotplug(volume: Volume) -> bool:
    sources = (volume.persistent_volume_claim, volume.data_volume, volume.memory_dump)
    return any(source is not None and source.hotpluggable for source in sources)


def _hotplug_volumes(change: Change, result: Update) -> None:
    """Volumes that may come and go follow the template as they are; the launcher attaches and detaches them."""
    spec, wanted = change.vmi.spec, change.wanted
    want = {v.name for v in wanted.volumes if is_hotplug(v)}
    have = {v.name for v in spec.volumes}
    gone = {v.name for v in spec.volumes if is_hotplug(v)} - {v.name for v in wanted.volumes}
    new = want - have
    if not new and not gone:
        return
    volumes = [v for v in spec.volumes if v.name not in gone] + [v for v in wanted.volumes if v.name in new]
    theirs, ours = spec.domain.devices.disks, wanted.domain.devices.disks
    disks = [d for d in theirs if d.name not in gone] + [d for d in ours if d.name in new]
    result.operations += [op.add("/spec/volumes", volumes), op.add("/spec/domain/devices/disks", disks)]


def _comparable(change: Change, spec: VirtualMachineInstanceSpec) -> dict[str, Any]:
    plugged = change.support.is_built(HOTPLUG_VOLUMES)
    hot = {v.name for s in (change.started, change.wanted) for v in s.volumes if plugged and is_hotplug(v)}
    plain: dict[str, Any] = to_plain(spec)
    domain = plain.get("domain") or {}
    plain["volumes"] = [v for v in plain.get("volumes") or [] if v["name"] not in hot]
    devices = domain.get("devices") or {}
    devices["disks"] = [d for d in devices.get("disks") or [] if d["name"] not in hot]
    links.without_links(devices)
    firmware = change.vmi.spec.domain.firmware
    if firmware is not None and (domain.get("firmware") or {}).get("uuid") == firmware.uuid:
        del domain["firmware"]["uuid"]
    if change.follows(HOTPLUG_CPU):
        (domain.get("cpu") or {}).pop("sockets", None)
    if change.follows(HOTPLUG_MEMORY):
        (domain.get("memory") or {}).pop("guest", None)
    for key in _PLACEMENT if change.follows(LIVE_MIGRATION) else ():
        plain.pop(key, None)
    for part in ("firmware", "cpu", "memory"):
        if not domain.get(part):
            domain.pop(part, None)
    return plain


def _different(before: Any, after: Any, running: Any, path: str) -> Iterator[str]:
    """The paths that differ, as short as they say where it is. To write down what runs by default is no difference."""
    if before == after or (before is None and after == running):
        return
    if not (before or after) or not all(isinstance(side, dict | None) for side in (before, after)):
        yield path
        return
    before, after, running = before or {}, after or {}, running if isinstance(running, dict) else {}
    for key in sorted(before.keys() | after.keys()):
        yield from _different(before.get(key), after.get(key), running.get(key), f"{path}.{key}")


def is_applicable(vmi: VirtualMachineInstance, generation: int) -> bool:
    """Whether there is a running VMI that was made from another generation."""
    seen = vmi.metadata.annotations.get(names.ANNOTATION_VM_GENERATION, "")
    alive = not is_final(vmi) and not is_terminating(vmi)
    return alive and seen.isdecimal() and int(seen) != generation and bool(vmi.status.virtual_machine_revision_name)
