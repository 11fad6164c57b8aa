"""Volumes of a running machine that its VM wants on other claims, by the strategy Migration (decisions/0056). Pure.

The VMI is told where its volumes shall be (`spec.volumes`) and where they are (`status.migratedVolumes`) in one write.
A migration takes them along, and the node where the machine arrives ends the change. Until then the claims that the
machine had are the whole ones, and the VM may not start from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from virt_controller.hotplug.statuses import claim_info
from virt_core.apis import names
from virt_core.apis.datavolume import DONE, FAILED, WAITING
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.keptstate import tracks_blocks
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine, VolumeMigrationState, VolumeUpdateState
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.apis.vmistatus import StorageMigratedVolumeInfo, VirtualMachineInstanceStatus
from virt_core.apis.volumemoves import MIGRATION, moving
from virt_core.apis.volumes import Volume, claim_of, is_hotplug
from virt_core.kube.conditions import get_condition
from virt_core.kube.patch import op, pointer
from virt_core.kube.vmistatus import with_condition, without_condition

_VOLUMES = "/spec/volumes"
_TOLD = (
    "the volumes move with the machine: {}. The workload updater of the KubeVirt object makes the migration"
    " (workloadUpdateMethods: LiveMigrate), or you do"
)
_GIVEN_UP = "the volumes stay on the claims that they were on: {}"


@dataclass(frozen=True, slots=True)
class Storage:
    """The claims of a namespace by name, the phases of its DataVolumes, and who else uses a claim."""

    claims: Callable[[str], PersistentVolumeClaim | None] = lambda _: None
    phases: Callable[[str], str | None] = lambda _: None
    users: Callable[[str], str] = lambda _: ""


@dataclass(frozen=True, slots=True)
class Plan:
    #: Of the VMI.
    operations: list[dict[str, Any]] = field(default_factory=list)
    #: Why a restart is needed.
    restart: str = ""
    waits: bool = False
    #: Volumes that are looked at here and nowhere else.
    names: frozenset[str] = frozenset()

    @property
    def writes_volumes(self) -> bool:
        return any(each["path"] == _VOLUMES for each in self.operations)


@dataclass(frozen=True, slots=True)
class Wish:
    strategy: str | None
    wanted: VirtualMachineInstanceSpec
    vmi: VirtualMachineInstance
    storage: Storage
    now: datetime
    #: The cluster changes machines while they run.
    live: bool = True
    #: Something else holds the VM's volumes: a snapshot.
    held: bool = False


def plan(wish: Wish) -> Plan:
    if wish.vmi.status.migrated_volumes:
        return _go_on(wish)
    changed = _changed(wish.wanted, wish.vmi.spec)
    if wish.strategy != MIGRATION or not wish.live or not changed:
        return Plan(_written(wish.vmi, _quiet(wish.vmi.status)))
    if why := next(_against(wish, changed), ""):
        return Plan(_written(wish.vmi, _quiet(wish.vmi.status)), f"volumes cannot move with the machine: {why}")
    handled = frozenset(changed)
    if why := next(_missing(wish, changed), ""):
        kind = names.CONDITION_VOLUMES_CHANGE
        status = with_condition(wish.vmi.status, kind, names.FALSE, "DestinationNotReady", why, now=wish.now)
        return Plan(_written(wish.vmi, status), waits=True, names=handled)
    if wish.held or move_is_unsettled(wish.vmi) or wish.vmi.status.phase != names.PHASE_RUNNING:
        return Plan(waits=True, names=handled)
    return Plan(_begun(wish, changed), waits=True, names=handled)


def move_is_unsettled(vmi: VirtualMachineInstance) -> bool:
    """From the hand-over on both nodes act on what the VMI says of its volumes."""
    move = vmi.status.migration_state
    return move is not None and bool(move.migration_uid) and not (move.completed or move.failed)


def _go_on(wish: Wish) -> Plan:
    """A change is under way. Another wish gives it up first; where the guest may have left already, its move must end
    before anybody knows where the volumes are."""
    moved = moving(wish.vmi.status)
    asked = {volume.name: _source(volume) for volume in wish.wanted.volumes}
    have = {volume.name: _source(volume) for volume in wish.vmi.spec.volumes}
    handled = frozenset(moved)
    if wish.strategy == MIGRATION and all(asked.get(name) == have.get(name) for name in moved):
        status = wish.vmi.status
        if get_condition(status.conditions, names.CONDITION_VOLUMES_CHANGE) is None:
            status = _told(status, names.TRUE, "", _TOLD.format(_listed(moved)), wish.now)
        return Plan(_written(wish.vmi, status), waits=True, names=handled)
    words = _GIVEN_UP.format(_listed(moved))
    status = _told(wish.vmi.status, names.FALSE, names.REASON_VOLUMES_CANCELLED, words, wish.now)
    if move_is_unsettled(wish.vmi):
        return Plan(_written(wish.vmi, status), waits=True, names=handled)
    status = replace(status, migrated_volumes=[])
    wanted = {(volume.name, claim_of(volume)): volume for volume in wish.wanted.volumes}
    volumes = [_back(volume, moved, wanted) for volume in wish.vmi.spec.volumes]
    return Plan(_written(wish.vmi, status, volumes), waits=True, names=handled)


def _back(
    volume: Volume, moved: Mapping[str, StorageMigratedVolumeInfo], wanted: Mapping[tuple[str, str], Volume]
) -> Volume:
    """On the claim that it was on, as the VM names it, if it does."""
    info = moved[volume.name].source_pvc_info if volume.name in moved else None
    if info is None:
        return volume
    if (volume.name, info.claim_name) in wanted:
        return wanted[volume.name, info.claim_name]
    if volume.data_volume is not None:
        return replace(volume, data_volume=replace(volume.data_volume, name=info.claim_name))
    if volume.persistent_volume_claim is not None:
        claim = replace(volume.persistent_volume_claim, claim_name=info.claim_name)
        return replace(volume, persistent_volume_claim=claim)
    return volume


def _begun(wish: Wish, changed: Mapping[str, Volume]) -> list[dict[str, Any]]:
    infos = {status.name: status.persistent_volume_claim_info for status in wish.vmi.status.volume_status}
    found = []
    for name, volume in changed.items():
        claim = wish.storage.claims(claim_of(volume))
        there = claim_info(claim) if claim is not None else None
        found.append(
            StorageMigratedVolumeInfo(volume_name=name, source_pvc_info=infos[name], destination_pvc_info=there)
        )
    status = replace(wish.vmi.status, migrated_volumes=found)
    status = _told(status, names.TRUE, "", _TOLD.format(_listed(moving(status))), wish.now)
    return _written(wish.vmi, status, [changed.get(volume.name, volume) for volume in wish.vmi.spec.volumes])


def _changed(wanted: VirtualMachineInstanceSpec, running: VirtualMachineInstanceSpec) -> dict[str, Volume]:
    """Volumes of the same name on other claims. A DataVolume and its claim are the same bytes."""
    have = {volume.name: volume for volume in running.volumes if _lasts(volume)}
    return {
        volume.name: volume
        for volume in wanted.volumes
        if _lasts(volume) and volume.name in have and claim_of(volume) != claim_of(have[volume.name])
    }


def changed_names(wanted: VirtualMachineInstanceSpec, running: VirtualMachineInstanceSpec) -> set[str]:
    return set(_changed(wanted, running))


def _lasts(volume: Volume) -> bool:
    return volume.persistent_volume_claim is not None or volume.data_volume is not None


def _against(wish: Wish, changed: Mapping[str, Volume]) -> Iterator[str]:
    """What speaks against it for as long as the machine runs."""
    told = get_condition(wish.vmi.status.conditions, names.CONDITION_STORAGE_LIVE_MIGRATABLE)
    if told is not None and told.status == names.FALSE:
        yield told.message or told.reason
    if tracks_blocks(wish.vmi):
        yield "its changed blocks are tracked for backups, in layers that belong to the claims that it is on"
    used = {claim_of(volume) for volume in wish.vmi.spec.volumes} - {""}
    known = {status.name: status.persistent_volume_claim_info for status in wish.vmi.status.volume_status}
    for name, volume in changed.items():
        if why := _disk_against(wish.vmi, volume) or _disk_against(wish.vmi, _running(wish.vmi, name)):
            yield f'"{name}" {why}'
        if known.get(name) is None:
            yield f'nobody knows the claim that "{name}" is on'
        claim = claim_of(volume)
        if claim in used:
            yield f'"{name}" cannot go to claim {claim}: another volume of the machine is on it, or goes there'
        used.add(claim)
        if user := wish.storage.users(claim):
            yield f'"{name}" cannot go to claim {claim}, which {user} uses'
        if wish.storage.phases(claim) == FAILED:
            yield f"DataVolume {claim} could not be made"
    for volume in wish.vmi.spec.volumes:
        info = known.get(volume.name)
        if volume.name in changed or info is None or not _lasts(volume):
            continue
        if names.ACCESS_ALL_NODES not in info.access_modes:
            yield f'only one node at a time reaches "{volume.name}", which does not go to another claim'


def _running(vmi: VirtualMachineInstance, name: str) -> Volume:
    return next(volume for volume in vmi.spec.volumes if volume.name == name)


def _disk_against(vmi: VirtualMachineInstance, volume: Volume) -> str:
    devices = vmi.spec.domain.devices
    disk = next((each for each in devices.disks if each.name == volume.name), None)
    if disk is None or any(each.name == volume.name for each in devices.filesystems):
        return "is shared as a filesystem"
    if is_hotplug(volume):
        return "is hot-plugged: unplug it, and plug another one"
    if disk.shareable:
        return "is shared with other machines"
    if disk.lun is not None:
        return "is a lun"
    claim = volume.persistent_volume_claim
    read_only = disk.cdrom is not None or (disk.disk is not None and disk.disk.read_only)
    return "is only read" if read_only or (claim is not None and claim.read_only) else ""


def _missing(wish: Wish, changed: Mapping[str, Volume]) -> Iterator[str]:
    """What may come, and is waited for."""
    for name, volume in changed.items():
        claim = claim_of(volume)
        found, phase = wish.storage.claims(claim), wish.storage.phases(claim)
        if found is None:
            yield f'there is no PersistentVolumeClaim "{claim}", to which volume "{name}" shall go'
        elif is_terminating(found):
            yield f'claim "{claim}", to which volume "{name}" shall go, is being deleted'
        elif phase in WAITING:
            yield f'DataVolume "{claim}" waits for its first user; it must be filled before volume "{name}" goes there'
        elif phase is not None and phase != DONE:
            yield f'DataVolume "{claim}", to which volume "{name}" shall go, is not filled yet ({phase})'


def _source(volume: Volume) -> tuple[str, bool]:
    return claim_of(volume), volume.data_volume is not None


def _listed(moved: Mapping[str, StorageMigratedVolumeInfo]) -> str:
    def way(info: StorageMigratedVolumeInfo) -> str:
        ends = (info.source_pvc_info, info.destination_pvc_info)
        return " to ".join(each.claim_name if each is not None else "?" for each in ends)

    return ", ".join(f"{name} from {way(info)}" for name, info in moved.items())


def _told(
    status: VirtualMachineInstanceStatus, value: str, reason: str, message: str, now: datetime
) -> VirtualMachineInstanceStatus:
    return with_condition(status, names.CONDITION_VOLUMES_CHANGE, value, reason, message, now=now)


def _quiet(status: VirtualMachineInstanceStatus) -> VirtualMachineInstanceStatus:
    """Nothing is waited for any more. That a change was given up stays to be read."""
    told = get_condition(status.conditions, names.CONDITION_VOLUMES_CHANGE)
    if told is None or told.reason == names.REASON_VOLUMES_CANCELLED:
        return status
    return without_condition(status, names.CONDITION_VOLUMES_CHANGE)


def _written(
    vmi: VirtualMachineInstance, status: VirtualMachineInstanceStatus, volumes: list[Volume] | None = None
) -> list[dict[str, Any]]:
    found = [op.add(_VOLUMES, volumes)] if volumes is not None else []
    parts = (
        ("conditions", vmi.status.conditions, status.conditions),
        ("migratedVolumes", vmi.status.migrated_volumes, status.migrated_volumes),
    )
    for name, before, after in parts:
        if after != before:
            path = pointer("status", name)
            found.append(op.add(path, after) if after else op.remove(path))
    return found


# -- what the VM remembers ---------------------------------------------------------------------------------------------


def remembered(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> VolumeUpdateState | None:
    """What moves, also when the VMI is gone in the middle of it."""
    if vmi is None:
        return vm.status.volume_update_state
    if not vmi.status.migrated_volumes:
        return None
    return VolumeUpdateState(
        volume_migration_state=VolumeMigrationState(migrated_volumes=list(vmi.status.migrated_volumes))
    )


def lost(vm: VirtualMachine, vmi: VirtualMachineInstance | None) -> str:
    """Why the VM may not start: its machine ended before its volumes were on the claims that the VM names. Empty: it
    may, also since its owner has named other claims, or the strategy no more."""
    if (vmi is not None and not is_final(vmi)) or vm.spec.update_volumes_strategy != MIGRATION:
        return ""
    state = remembered(vm, vmi)
    moved = state.volume_migration_state.migrated_volumes if state and state.volume_migration_state else []
    volumes = vm.spec.template.spec.volumes if vm.spec.template is not None else []
    named = {volume.name: claim_of(volume) for volume in volumes}
    half = [each for each in moved if each.destination_pvc_info and named.get(each.volume_name) == _end(each)]
    if not half:
        return ""
    return (
        f"the machine ended before its volumes were copied ({_listed({each.volume_name: each for each in half})}): name"
        " the claims that they were on, or take updateVolumesStrategy away if the others are whole"
    )


def _end(info: StorageMigratedVolumeInfo) -> str:
    return info.destination_pvc_info.claim_name if info.destination_pvc_info is not None else ""
