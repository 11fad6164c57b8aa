"""Wishes to attach and detach volumes, queued in a VM's status: they become part of its template. Pure.

What is in the template and may come and go reaches a running VMI by itself where that is built (`liveupdate`).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from virt_core.apis.devices import Disk
from virt_core.apis.vm import AddVolumeOptions, VirtualMachine, VirtualMachineVolumeRequest
from virt_core.apis.volumes import Volume
from virt_core.kube.patch import op


def operations(vm: VirtualMachine) -> list[dict[str, Any]]:
    """The template with all wishes fulfilled."""
    if vm.spec.template is None or not vm.status.volume_requests:
        return []
    spec = vm.spec.template.spec
    volumes, disks = list(spec.volumes), list(spec.domain.devices.disks)
    for request in vm.status.volume_requests:
        if request.remove_volume_options is not None:
            gone = request.remove_volume_options.name
            volumes = [v for v in volumes if v.name != gone]
            disks = [d for d in disks if d.name != gone]
        elif request.add_volume_options is not None and not _fulfilled(request, {v.name for v in volumes}):
            volumes.append(_volume(request.add_volume_options))
            disks.append(_disk(request.add_volume_options))
    if volumes == spec.volumes and disks == spec.domain.devices.disks:
        return []
    path = "/spec/template/spec"
    return [op.add(f"{path}/volumes", volumes), op.add(f"{path}/domain/devices/disks", disks)]


def left(vm: VirtualMachine) -> list[VirtualMachineVolumeRequest]:
    """The wishes that the template does not fulfil yet."""
    if vm.spec.template is None:
        return vm.status.volume_requests
    present = {v.name for v in vm.spec.template.spec.volumes}
    return [request for request in vm.status.volume_requests if not _fulfilled(request, present)]


def _fulfilled(request: VirtualMachineVolumeRequest, present: set[str]) -> bool:
    if request.add_volume_options is not None:
        return request.add_volume_options.name in present
    return request.remove_volume_options is None or request.remove_volume_options.name not in present


def _volume(options: AddVolumeOptions) -> Volume:
    source = options.volume_source
    claim, data = source.persistent_volume_claim, source.data_volume
    return Volume(
        name=options.name,
        persistent_volume_claim=replace(claim, hotpluggable=True) if claim is not None else None,
        data_volume=replace(data, hotpluggable=True) if data is not None else None,
    )


def _disk(options: AddVolumeOptions) -> Disk:
    return replace(options.disk, name=options.name)
