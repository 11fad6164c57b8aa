"""Rules about status.volumeRequests: wishes to attach and detach disks, written by the subresources."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence

import msgspec

from virt_api.admission.causes import Cause, invalid, not_supported
from virt_api.admission.cluster import Cluster
from virt_api.admission.defaults import apply_defaults
from virt_api.admission.rules import SPEC_RULES, broken_rules
from virt_api.admission.rules.base import Check
from virt_core.apis.devices import Disk
from virt_core.apis.vm import AddVolumeOptions, VirtualMachine, VirtualMachineVolumeRequest
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.apis.volumes import Volume
from virt_core.kube.configvalues import ClusterConfig

FIELD = "Status.volumeRequests"
_ORDER = "spec.domain.devices.disks[1].bootOrder"


def broken_requests(
    vm: VirtualMachine, requests: Sequence[VirtualMachineVolumeRequest], cluster: Cluster, config: ClusterConfig
) -> Iterator[Cause]:
    """What is wrong with the wishes themselves; else what would be wrong with the machine once they are fulfilled."""
    vmi = cluster.get(VirtualMachineInstance, vm.metadata.name, vm.metadata.namespace)
    causes = list(_wishes(vm, vmi, requests))
    yield from causes
    if causes:
        return
    for spec, path in (
        (vm.spec.template.spec if vm.spec.template else None, "spec.template.spec"),
        (vmi.spec if vmi is not None else None, "spec"),
    ):
        if spec is not None:
            machine = fulfilled(copy.deepcopy(spec), requests)
            apply_defaults(machine, config)
            yield from broken_rules(Check(machine, config, path), SPEC_RULES)


def fulfilled(
    spec: VirtualMachineInstanceSpec, requests: Sequence[VirtualMachineVolumeRequest]
) -> VirtualMachineInstanceSpec:
    devices = spec.domain.devices
    last: dict[str, AddVolumeOptions | None] = {}
    for request in requests:
        add, remove = request.add_volume_options, request.remove_volume_options
        name = add.name if add is not None else remove.name if remove is not None else ""
        last.pop(name, None)  # So that what comes last stands last.
        last[name] = add
    spec.volumes = [volume for volume in spec.volumes if volume.name not in last]
    devices.disks = [disk for disk in devices.disks if disk.name not in last]
    for name, add in last.items():
        if add is not None:
            source = add.volume_source
            claim, data = source.persistent_volume_claim, source.data_volume
            spec.volumes.append(Volume(name=name, persistent_volume_claim=claim, data_volume=data))
            devices.disks.append(msgspec.structs.replace(add.disk, name=name))
    return spec


def _wishes(
    vm: VirtualMachine, vmi: VirtualMachineInstance | None, requests: Sequence[VirtualMachineVolumeRequest]
) -> Iterator[Cause]:
    state = vmi.status.migration_state if vmi is not None else None
    if state is not None and not state.completed:
        yield not_supported(FIELD, "volumes cannot be attached or detached while the VMI migrates")
        return
    volumes = list(vm.spec.template.spec.volumes) if vm.spec.template else []
    volumes += vmi.spec.volumes if vmi is not None else []
    by_name: dict[str, list[Volume]] = {}
    for volume in volumes:
        by_name.setdefault(volume.name, []).append(volume)
    added: set[str] = set()
    removed: set[str] = set()
    for request in requests:
        yield from _request(request, by_name, added, removed)


def _request(
    request: VirtualMachineVolumeRequest, volumes: dict[str, list[Volume]], added: set[str], removed: set[str]
) -> Iterator[Cause]:
    add, remove = request.add_volume_options, request.remove_volume_options
    if (add is None) == (remove is None):
        yield invalid(FIELD, "exactly one of addVolumeOptions and removeVolumeOptions is needed")
    elif add is not None:
        if add.name in added:
            yield invalid(FIELD, f"{add.name!r} is added twice")
        added.add(add.name)
        yield from hotplug_disk(add.disk, add.name, FIELD)
        yield from _clash(add, volumes.get(add.name, []))
    elif remove is not None:
        if remove.name in removed:
            yield invalid(FIELD, f"{remove.name!r} is removed twice")
        removed.add(remove.name)


def hotplug_disk(disk: Disk | None, name: str, field: str) -> Iterator[Cause]:
    """What can be attached to a running machine."""
    if disk is None:
        yield invalid(field, f"{name!r} needs a disk")
        return
    if disk.lun is not None and disk.disk is None:
        if disk.lun.bus not in ("", "scsi"):
            yield invalid(field, f"the lun {name!r} must be on the scsi bus")
        if disk.lun.reservation:
            why = "its Pod has the way to the node's helper from its start on"
            yield invalid(field, f"the lun {name!r} cannot be reserved if it comes while the machine runs: {why}")
    elif disk.disk is None or disk.cdrom is not None:
        yield invalid(field, f"{name!r} must be a disk or a lun")
    elif disk.disk.bus not in ("scsi", "virtio"):
        yield invalid(field, f"{name!r} must be on the scsi or virtio bus")
    bus = disk.disk.bus if disk.disk is not None else ""
    if disk.dedicated_io_thread and bus != "virtio":
        yield invalid(field, f"{name!r}: dedicatedIOThread needs the virtio bus")
    if disk.boot_order is not None and disk.boot_order < 1:
        yield invalid(_ORDER, "must be 1 or more")


def _clash(add: AddVolumeOptions, namesakes: list[Volume]) -> Iterator[Cause]:
    """The same name for the same thing is no clash: a request may be seen twice."""
    wanted = (add.volume_source.persistent_volume_claim, add.volume_source.data_volume)
    claims = [claim.claim_name if claim else None for claim in wanted[:1]] + [wanted[1].name if wanted[1] else None]
    for volume in namesakes:
        claim, data = volume.persistent_volume_claim, volume.data_volume
        found = [claim.claim_name if claim else None, data.name if data else None]
        if found != claims:
            yield invalid(FIELD, f"there is already another volume {add.name!r}")
            return
