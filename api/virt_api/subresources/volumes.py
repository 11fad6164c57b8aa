"""addvolume and removevolume: they change the VM's template, or the VMI itself; controllers do the rest.

With the gate HotplugVolumes a VM gets a request in its status instead, which virt-controller works off.
"""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from virt_api.problems import Problem, from_api
from virt_api.subresources import checks
from virt_api.subresources.bodies import AddVolume, RemoveVolume
from virt_api.subresources.call import Call, accepted
from virt_api.subresources.writes import again_on_conflict, patch_for
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.devices import Disk, DiskTarget
from virt_core.apis.vm import AddVolumeOptions, RemoveVolumeOptions, VirtualMachine, VirtualMachineVolumeRequest
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.apis.volumes import Volume
from virt_core.kube.errors import ApiError

GATE_DECLARATIVE = "DeclarativeHotplugVolumes"
GATE_REQUESTS = "HotplugVolumes"

Wish = AddVolumeOptions | RemoveVolumeOptions


async def add_to_vm(call: Call) -> web.Response:
    return await _change_vm(call, whole(await _body(call, AddVolume)))


async def remove_from_vm(call: Call) -> web.Response:
    return await _change_vm(call, _removal(await _body(call, RemoveVolume)))


async def add_to_vmi(call: Call) -> web.Response:
    return await _change_vmi(call, whole(await _body(call, AddVolume)))


async def remove_from_vmi(call: Call) -> web.Response:
    return await _change_vmi(call, _removal(await _body(call, RemoveVolume)))


async def _body(call: Call, cls: type[Any]) -> Any:
    if not (call.config.has(GATE_DECLARATIVE) or call.config.has(GATE_REQUESTS)):
        raise Problem(400, f"volumes cannot be changed: neither {GATE_DECLARATIVE} nor {GATE_REQUESTS} is enabled")
    return await call.body(cls, required=True)


def whole(given: AddVolume) -> AddVolumeOptions:
    """The options with everything that is needed. Raises Problem 400."""
    source = given.volume_source
    if not given.name:
        raise Problem(400, "AddVolumeOptions requires name to be set")
    if given.disk is None:
        raise Problem(400, "AddVolumeOptions requires disk to be set")
    if source is None or (source.persistent_volume_claim is None) == (source.data_volume is None):
        raise Problem(400, "AddVolumeOptions requires volumeSource to be a persistentVolumeClaim or a dataVolume")
    try:
        disk = from_plain({**given.disk, "name": given.name}, Disk)
    except msgspec.ValidationError as error:
        raise Problem(400, f"the disk does not fit this call: {error}") from error
    if disk.disk is None and disk.lun is None and disk.cdrom is None:
        disk.disk = DiskTarget(bus="scsi")
    for part in (source.persistent_volume_claim, source.data_volume):
        if part is not None:
            part.hotpluggable = True
    return AddVolumeOptions(name=given.name, disk=disk, volume_source=source, dry_run=given.dry_run)


def _removal(given: RemoveVolume) -> RemoveVolumeOptions:
    if not given.name:
        raise Problem(400, "RemoveVolumeOptions requires name to be set")
    return RemoveVolumeOptions(name=given.name, dry_run=given.dry_run)


def changed(spec: VirtualMachineInstanceSpec, wish: Wish) -> dict[str, Any]:
    """Volumes and disks as they shall be, as a part of a VMI's spec. Raises Problem 409."""
    volumes, disks = list(spec.volumes), list(spec.domain.devices.disks)
    if isinstance(wish, AddVolumeOptions):
        _check_free(volumes, wish)
        source = wish.volume_source
        volumes.append(
            Volume(
                name=wish.name, persistent_volume_claim=source.persistent_volume_claim, data_volume=source.data_volume
            )
        )
        disks.append(wish.disk)
    else:
        gone = _check_removable(volumes, wish.name)
        volumes = [volume for volume in volumes if volume.name != gone]
        disks = [disk for disk in disks if disk.name != gone]
    return {"volumes": to_plain(volumes), "domain": {"devices": {"disks": to_plain(disks)}}}


def _check_free(volumes: list[Volume], wish: AddVolumeOptions) -> None:
    wanted = Volume(
        name=wish.name,
        persistent_volume_claim=wish.volume_source.persistent_volume_claim,
        data_volume=wish.volume_source.data_volume,
    )
    for volume in volumes:
        if volume.name == wish.name:
            raise Problem(409, f"unable to add volume [{wish.name}]: there is already a volume of this name")
        if _source(volume) and _source(volume) == _source(wanted):
            raise Problem(409, f"unable to add volume source [{_source(volume)}]: volume {volume.name} uses it")


def _check_removable(volumes: list[Volume], name: str) -> str:
    """The volume may be named by itself or by its claim."""
    for volume in volumes:
        if name in (volume.name, _source(volume)):
            source = volume.persistent_volume_claim or volume.data_volume
            if source is None or not source.hotpluggable:
                raise Problem(409, f"unable to remove volume [{name}]: it is not hotpluggable")
            return volume.name
    raise Problem(409, f"unable to remove volume [{name}]: it does not exist")


def _source(volume: Volume) -> str:
    if volume.data_volume is not None:
        return volume.data_volume.name
    return volume.persistent_volume_claim.claim_name if volume.persistent_volume_claim is not None else ""


async def _change_vm(call: Call, wish: Wish) -> web.Response:
    async def attempt() -> None:
        vm = await call.vm()
        spec = vm.spec.template.spec if vm.spec.template is not None else VirtualMachineInstanceSpec()
        if call.config.has(GATE_REQUESTS) and isinstance(wish, RemoveVolumeOptions) and _is_queued(vm, wish):
            change = {}
        else:
            change = changed(spec, wish)
        if call.config.has(GATE_REQUESTS):
            document, subresource = {"status": {"volumeRequests": to_plain(_queue(vm, wish))}}, "status"
        else:
            document, subresource = {"spec": {"template": {"spec": change}}}, ""
        await _patch(call, vm, document, wish.dry_run, subresource)

    await again_on_conflict(attempt)
    return accepted()


def _queue(vm: VirtualMachine, wish: Wish) -> list[VirtualMachineVolumeRequest]:
    """A removal takes back an adding of the same name that nobody has begun with."""
    queued = vm.status.volume_requests
    if isinstance(wish, AddVolumeOptions):
        if any(_asked(request) == wish.name for request in queued):
            raise Problem(409, f"a request for volume [{wish.name}] is already under way")
        return [*queued, VirtualMachineVolumeRequest(add_volume_options=wish)]
    if any(r.remove_volume_options is not None and r.remove_volume_options.name == wish.name for r in queued):
        raise Problem(409, f"a request to remove volume [{wish.name}] is already under way")
    kept = [request for request in queued if _asked(request) != wish.name]
    return [*kept, VirtualMachineVolumeRequest(remove_volume_options=wish)]


def _is_queued(vm: VirtualMachine, wish: RemoveVolumeOptions) -> bool:
    """It is not in the template yet, and shall not get there."""
    return any(r.add_volume_options is not None and _asked(r) == wish.name for r in vm.status.volume_requests)


def _asked(request: VirtualMachineVolumeRequest) -> str:
    options = request.add_volume_options or request.remove_volume_options
    return options.name if options is not None else ""


async def _change_vmi(call: Call, wish: Wish) -> web.Response:
    async def attempt() -> None:
        vmi = await call.vmi()
        checks.running(vmi)
        owned = any(owner.kind == "VirtualMachine" and owner.controller for owner in vmi.metadata.owner_references)
        if owned and not call.config.has(GATE_REQUESTS):
            raise Problem(400, f"VMI {call.name} belongs to a VM: change the volumes of the VM")
        await _patch(call, vmi, {"spec": changed(vmi.spec, wish)}, wish.dry_run)

    await again_on_conflict(attempt)
    return accepted()


async def _patch(
    call: Call,
    obj: VirtualMachine | VirtualMachineInstance,
    document: dict[str, Any],
    dry_run: list[str],
    subresource: str = "",
) -> None:
    try:
        await call.kube.patch(obj, patch_for(obj, document, dry_run), subresource=subresource)
    except ApiError as error:
        raise from_api(error, call.name, kind=obj.kind.lower()) from error
