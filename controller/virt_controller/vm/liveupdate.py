"""A VM whose spec changed while its VMI runs: what reaches the VMI now, and what must wait for a restart. Pure.

The spec that the VMI was started from is compared with today's, both with instance type and preference applied. What
can be changed in a running machine is taken out of the comparison and looked at piece by piece. Whether a piece can be
changed at all says the table of supported features; what cannot is left to a restart, and the VMI stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from virt_controller.vm import growth, links, nics, volumemoves
from virt_core.apis import names
from virt_core.apis.base import to_plain
from virt_core.apis.devices import Disk
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.support.cluster import HOTPLUG_CPU, HOTPLUG_MEMORY, HOTPLUG_NICS, HOTPLUG_VOLUMES, LIVE_MIGRATION
from virt_core.apis.support.table import TODAY, Support
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.apis.volumes import Volume, claim_of, is_hotplug
from virt_core.kube.patch import op, pointer

_PLACEMENT = ("nodeSelector", "affinity", "tolerations")
_MAX_PATHS = 5


@dataclass(slots=True)
class Update:
    """Operations on the VMI, why a restart is needed, and whether something must wait for another change to end."""

    operations: list[dict[str, Any]] = field(default_factory=list)
    restart: list[str] = field(default_factory=list)
    waits: bool = False

    def take(self, part: growth.Growth | volumemoves.Plan) -> None:
        self.operations += part.operations
        self.restart += [part.restart] if part.restart else []
        self.waits |= part.waits

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
    #: The VM says that volumes which are to be on other claims are copied there, and what becomes of them now.
    copies: bool = False
    volumes: volumemoves.Plan = field(default_factory=volumemoves.Plan)

    @property
    def kept(self) -> frozenset[str]:
        """Volumes that may not be exchanged for others without their bytes."""
        return frozenset(volumemoves.changed_names(self.wanted, self.vmi.spec)) if self.copies else frozenset()

    def follows(self, what: str) -> bool:
        """Whether a running machine takes this over without a restart."""
        return self.live and self.support.is_built(what)


def update(change: Change) -> Update:
    result = Update()
    result.take(change.volumes)
    if change.support.is_built(HOTPLUG_VOLUMES) and not change.volumes.writes_volumes:
        _hotplug_volumes(change, result)
    for what, follow in ((HOTPLUG_CPU, growth.sockets), (HOTPLUG_MEMORY, growth.memory)):
        if change.follows(what):
            result.take(follow(change.wanted, change.vmi))
    if change.follows(LIVE_MIGRATION):
        _placement(change, result)
    if change.support.is_built(HOTPLUG_NICS):
        _interfaces(change, result)
    before, after = _comparable(change, change.started), _comparable(change, change.wanted)
    if paths := list(_different(before, after, to_plain(change.vmi.spec), "spec.template.spec")):
        shown = ", ".join(paths[:_MAX_PATHS]) + (" and others" if len(paths) > _MAX_PATHS else "")
        result.restart.append(f"{shown} changed")
    result.operations += links.operations(change.wanted, change.vmi)
    if not result.restart and not result.waits and not change.relabelled:
        path = pointer("metadata", "annotations", names.ANNOTATION_VM_GENERATION)
        result.operations.append(op.add(path, str(change.generation)))
    return result


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


def _hotplug_volumes(change: Change, result: Update) -> None:
    """Volumes that may come and go follow the template. One that changes its claim goes first, and comes again when
    nothing is left of it."""
    spec, ours = change.vmi.spec, change.wanted
    unborn = _drives(ours) - _drives(spec)  # A drive comes with a restart, and its medium with it.
    want = {v.name: v for v in ours.volumes if _follows(v) and v.name not in unborn}
    want |= {v.name: v for v in spec.volumes if v.name in change.kept and v.name in want}
    gone = {v.name for v in spec.volumes if _follows(v) and _source(want.get(v.name)) != _source(v)}
    left = {v.name for v in spec.volumes} | {status.name for status in change.vmi.status.volume_status}
    new = {name for name in want if name not in left}
    late = want.keys() - new - ({v.name for v in spec.volumes} - gone)
    running = change.vmi.status.phase == names.PHASE_RUNNING
    result.waits |= bool(late) or (bool(new or gone) and not running)
    drives = _drives(spec) & _drives(ours)
    disks = _disks(spec, ours, gone - drives, new - drives)
    if not running or (not new and not gone and disks == spec.domain.devices.disks):
        return
    volumes = [v for v in spec.volumes if v.name not in gone] + [want[name] for name in want if name in new]
    result.operations += [op.add("/spec/volumes", volumes), op.add("/spec/domain/devices/disks", disks)]


def _follows(volume: Volume) -> bool:
    """A claim for memory dumps comes and goes with each dump (`memorydump`), not with the template."""
    return is_hotplug(volume) and volume.memory_dump is None


def _source(volume: Volume | None) -> tuple[str, bool] | None:
    return None if volume is None else (claim_of(volume), volume.data_volume is not None)


def _drives(spec: VirtualMachineInstanceSpec) -> set[str]:
    """CD-ROM drives stay when their medium goes."""
    return {disk.name for disk in spec.domain.devices.disks if disk.cdrom is not None}


def _disks(
    spec: VirtualMachineInstanceSpec, wanted: VirtualMachineInstanceSpec, gone: set[str], new: set[str]
) -> list[Disk]:
    kept = [disk for disk in spec.domain.devices.disks if disk.name not in gone]
    return kept + [disk for disk in wanted.domain.devices.disks if disk.name in new]


def _interfaces(change: Change, result: Update) -> None:
    result.operations += nics.operations(change.wanted, change.vmi)
    for name in nics.unfollowed(change.wanted, change.vmi):
        result.restart.append(f'interface "{name}" was dropped; the state "absent" removes it from the running machine')


def _comparable(change: Change, spec: VirtualMachineInstanceSpec) -> dict[str, Any]:
    plugged = change.support.is_built(HOTPLUG_VOLUMES)
    hot = {v.name for s in (change.started, change.wanted) for v in s.volumes if plugged and is_hotplug(v)}
    plain: dict[str, Any] = to_plain(spec)
    domain = plain.get("domain") or {}
    plain["volumes"] = [_as_it_runs(v, change, spec) for v in plain.get("volumes") or [] if v["name"] not in hot]
    devices = domain.get("devices") or {}
    devices["disks"] = [d for d in devices.get("disks") or [] if d["name"] not in hot or "cdrom" in d]
    links.without_links(devices)
    if change.support.is_built(HOTPLUG_NICS):
        nics.without_followed(plain, change.wanted, change.vmi)
    firmware = change.vmi.spec.domain.firmware
    if firmware is not None and (domain.get("firmware") or {}).get("uuid") == firmware.uuid:
        del domain["firmware"]["uuid"]
    # What the template does not name any more has no size to follow to.
    if change.follows(HOTPLUG_CPU) and growth.names_sockets(change.wanted):
        (domain.get("cpu") or {}).pop("sockets", None)
    if change.follows(HOTPLUG_MEMORY) and growth.names_memory(change.wanted):
        (domain.get("memory") or {}).pop("guest", None)
    for key in _PLACEMENT if change.follows(LIVE_MIGRATION) else ():
        plain.pop(key, None)
    for part in ("firmware", "cpu", "memory"):
        if not domain.get(part):
            domain.pop(part, None)
    return plain


def _as_it_runs(volume: dict[str, Any], change: Change, spec: VirtualMachineInstanceSpec) -> dict[str, Any]:
    """Where a volume is that has moved since the start; one that is on its way is looked at elsewhere."""
    if volume["name"] in change.volumes.names:
        return {"name": volume["name"]}
    claims = {v.name: claim_of(v) for v in spec.volumes}
    running = next((v for v in change.vmi.spec.volumes if v.name == volume["name"]), None)
    if spec is not change.started or running is None or not claims[running.name]:
        return volume
    plain: dict[str, Any] = to_plain(running)
    return plain if claim_of(running) not in ("", claims[running.name]) else volume


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
