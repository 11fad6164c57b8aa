"""A dump of the guest's memory, step by step: the claim comes to the machine, takes the dump, and goes again. Pure.

The request is in the VM's status. The volume stays in the VM's template, which ties the claim to the VM; the VMI has it
only while a dump is made, as the claim's directory and not as a disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vm import VirtualMachineMemoryDumpRequest as Request
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VolumeStatus
from virt_core.apis.volumes import MemoryDumpVolumeSource, Volume
from virt_core.kube.patch import op

Vmi = VirtualMachineInstance | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What the request becomes, and what changes in the VM's template, the VMI and the claim."""

    request: Request | None
    template: list[dict[str, Any]] = field(default_factory=list)
    vmi: list[dict[str, Any]] = field(default_factory=list)
    #: What the claim is said to hold; empty: nothing new.
    noted: str = ""


def plan(vm: VirtualMachine, vmi: Vmi) -> Plan | None:
    """None: nothing to do."""
    request = vm.status.memory_dump_request
    if request is None or vm.spec.template is None:
        return None
    vmi = vmi if vmi is not None and not is_final(vmi) and not is_terminating(vmi) else None
    phase = names.DUMP_DISSOCIATING if request.remove else request.phase
    found = _STEPS[phase](vm, vmi, request) if phase in _STEPS else None
    changed = found is not None and (found.request != request or found.template or found.vmi)
    return found if changed else None


def without_dumps(volumes: list[Volume]) -> list[Volume]:
    """A VMI starts without the claim: nothing is to be dumped yet."""
    return [volume for volume in volumes if volume.memory_dump is None]


def _associate(vm: VirtualMachine, vmi: Vmi, request: Request) -> Plan:
    del vmi
    assert vm.spec.template is not None
    volumes = vm.spec.template.spec.volumes
    phase = replace(request, phase=names.DUMP_IN_PROGRESS)
    if any(volume.name == request.claim_name for volume in volumes):
        return Plan(phase)
    added = [*volumes, _volume(request)]
    return Plan(phase, template=[op.add("/spec/template/spec/volumes", added)])


def _dump(vm: VirtualMachine, vmi: Vmi, request: Request) -> Plan:
    del vm
    if vmi is None:
        return _failed(request, vmi, "the machine ended before its memory was written")
    status = _status(vmi, request)
    if status is not None and status.phase == names.VOLUME_DUMP_FAILED:
        return _failed(request, vmi, status.message or "the memory could not be written")
    info = status.memory_dump_volume if status is not None else None
    if status is not None and status.phase == names.VOLUME_DUMPED and info is not None:
        done = replace(
            request,
            phase=names.DUMP_UNMOUNTING,
            start_timestamp=info.start_timestamp,
            end_timestamp=info.end_timestamp,
            file_name=info.target_file_name,
        )
        return Plan(done, vmi=_without(vmi, request), noted=info.target_file_name)
    return Plan(request, vmi=_with(vmi, request))


def _unmount(vm: VirtualMachine, vmi: Vmi, request: Request) -> Plan:
    del vm
    if vmi is None or (_status(vmi, request) is None and not _has(vmi, request)):
        return Plan(replace(request, phase=names.DUMP_COMPLETED))
    return Plan(request, vmi=_without(vmi, request))


def _over(vm: VirtualMachine, vmi: Vmi, request: Request) -> Plan:
    del vm
    return Plan(request, vmi=_without(vmi, request))


def _dissociate(vm: VirtualMachine, vmi: Vmi, request: Request) -> Plan:
    assert vm.spec.template is not None
    kept = [volume for volume in vm.spec.template.spec.volumes if not _is(volume, request)]
    if len(kept) != len(vm.spec.template.spec.volumes):
        template = [op.add("/spec/template/spec/volumes", kept)]
        return Plan(replace(request, phase=names.DUMP_DISSOCIATING), template=template, vmi=_without(vmi, request))
    return Plan(None, vmi=_without(vmi, request))


def _failed(request: Request, vmi: Vmi, message: str) -> Plan:
    failed = replace(request, phase=names.DUMP_FAILED, message=message)
    return Plan(failed, vmi=_without(vmi, request), noted="Memory dump failed")


def _volume(request: Request) -> Volume:
    source = MemoryDumpVolumeSource(claim_name=request.claim_name, hotpluggable=True)
    return Volume(name=request.claim_name, memory_dump=source)


def _is(volume: Volume, request: Request) -> bool:
    return volume.memory_dump is not None and volume.memory_dump.claim_name == request.claim_name


def _has(vmi: VirtualMachineInstance, request: Request) -> bool:
    return any(_is(volume, request) for volume in vmi.spec.volumes)


def _status(vmi: VirtualMachineInstance, request: Request) -> VolumeStatus | None:
    return next((each for each in vmi.status.volume_status if each.name == request.claim_name), None)


def _with(vmi: VirtualMachineInstance, request: Request) -> list[dict[str, Any]]:
    """Once nothing is left of an earlier dump's volume."""
    if vmi.status.phase != names.PHASE_RUNNING or _has(vmi, request) or _status(vmi, request) is not None:
        return []
    return [op.add("/spec/volumes", [*vmi.spec.volumes, _volume(request)])]


def _without(vmi: Vmi, request: Request) -> list[dict[str, Any]]:
    if vmi is None or not _has(vmi, request):
        return []
    return [op.add("/spec/volumes", [volume for volume in vmi.spec.volumes if not _is(volume, request)])]


_STEPS: dict[str, Callable[[VirtualMachine, Vmi, Request], Plan]] = {
    names.DUMP_ASSOCIATING: _associate,
    names.DUMP_IN_PROGRESS: _dump,
    names.DUMP_UNMOUNTING: _unmount,
    names.DUMP_COMPLETED: _over,
    names.DUMP_FAILED: _over,
    names.DUMP_DISSOCIATING: _dissociate,
}
