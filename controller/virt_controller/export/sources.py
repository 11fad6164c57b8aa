"""What an export is of: a claim, a stopped VM or a snapshot, and whether it can be read now."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from virt_controller.export import model
from virt_controller.export.model import Exported, Said, Source
from virt_controller.vm.volumemoves import lost
from virt_core.apis import names
from virt_core.apis.datavolume import DONE, KEY_CONTENT_TYPE, DataVolume
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumes import claim_of

_DISK_CONTENT = ("", "kubevirt")
_ENDED = ("Succeeded", "Failed")
#: They only read, or are done when they have ended.
_NO_USERS = (names.APP_EXPORTER,)


@dataclass(frozen=True, slots=True)
class Sight:
    """How to look at what is there; keys are `namespace/name`."""

    claim: Callable[[str], PersistentVolumeClaim | None]
    data_volume: Callable[[str], DataVolume | None]
    vm: Callable[[str], VirtualMachine | None]
    vmi: Callable[[str], VirtualMachineInstance | None]
    #: Machines that use a claim.
    machines: Callable[[str], Iterable[VirtualMachineInstance]]
    #: The Pods of a namespace.
    pods: Callable[[str], Iterable[Pod]]
    #: The claims that keep what firmware and TPM of a VM store.
    kept: Callable[[VirtualMachine], Iterable[PersistentVolumeClaim]]


def claim_source(namespace: str, name: str, sight: Sight) -> Source:
    key = f"{namespace}/{name}"
    claim = sight.claim(key)
    if claim is None or is_terminating(claim):
        words = f"there is no PersistentVolumeClaim {name}"
        return _claim(Source(reason=model.CLAIM_MISSING, message=words), names.FALSE, model.CLAIM_MISSING)
    if claim.status.phase != "Bound":
        words = f"PersistentVolumeClaim {name} is not bound"
        return _claim(Source(reason=model.CLAIM_PENDING, message=words), names.FALSE, model.CLAIM_PENDING)
    if not is_filled(claim, sight):
        words = f"DataVolume {name} is not Succeeded yet"
        return _claim(Source(reason=model.CLAIM_PENDING, message=words), names.FALSE, model.CLAIM_PENDING)
    exported = Exported(name, claim, is_disk(claim, sight))
    users = users_of(key, sight)
    used = f"PersistentVolumeClaim {key} is used by {', '.join(users[:3])}" if users else ""
    found = Source((exported,), reason=model.IN_USE if used else "", message=used)
    return _claim(found, names.TRUE, model.CLAIM_BOUND)


def _claim(source: Source, status: str, reason: str) -> Source:
    return replace(source, condition=(model.CONDITION_CLAIM, Said(status, reason, source.message)))


def vm_source(namespace: str, name: str, sight: Sight) -> Source:
    key = f"{namespace}/{name}"
    vm = sight.vm(key)
    if vm is None or is_terminating(vm):
        return Source(reason=model.VM_MISSING, message=f"there is no VirtualMachine {name}", vm_name=name)
    wanted = volumes_of(vm)
    kept = [claim for claim in sight.kept(vm) if not is_terminating(claim)]
    if not wanted and not kept:
        words = f"VirtualMachine {name} has no volume that is kept"
        return Source(reason=model.VM_EMPTY, message=words, empty=True, vm=vm, vm_name=name)
    volumes, trouble = _volumes(namespace, wanted, sight)
    volumes += [Exported(claim.metadata.name, claim, disk=False) for claim in kept]
    vmi = sight.vmi(key)
    if vmi is not None and not is_final(vmi):
        words = f"Virtual Machine {key} is running"
        return Source(tuple(volumes), model.IN_USE, words, vm=vm, vm_name=name)
    trouble = trouble or lost(vm, vmi)
    if trouble:
        return Source(tuple(volumes), model.NOT_FILLED, trouble, vm=vm, vm_name=name)
    used = next((words for each in volumes if (words := _machines(namespace, each, sight))), "")
    return Source(tuple(volumes), model.IN_USE if used else "", used, vm=vm, vm_name=name)


def volumes_of(vm: VirtualMachine) -> dict[str, bool]:
    """The claims of its volumes, and whether a disk is in each. What is thrown away at a stop is none."""
    if vm.spec.template is None:
        return {}
    found: dict[str, bool] = {}
    shared = {each.name for each in vm.spec.template.spec.domain.devices.filesystems}
    for volume in vm.spec.template.spec.volumes:
        if volume.ephemeral is None and (name := claim_of(volume)):
            found.setdefault(name, volume.memory_dump is None and volume.name not in shared)
    return found


def _volumes(namespace: str, wanted: dict[str, bool], sight: Sight) -> tuple[list[Exported], str]:
    found, trouble = [], ""
    for name, disk in wanted.items():
        claim = sight.claim(f"{namespace}/{name}")
        if claim is None or claim.status.phase != "Bound":
            trouble = trouble or f"PersistentVolumeClaim {name} is not there or not bound"
        elif not is_filled(claim, sight):
            trouble = trouble or f"DataVolume {name} is not Succeeded yet"
        else:
            found.append(Exported(name, claim, disk))
    return found, trouble


def _machines(namespace: str, each: Exported, sight: Sight) -> str:
    machines = [
        vmi.metadata.name for vmi in sight.machines(f"{namespace}/{each.claim.metadata.name}") if not is_final(vmi)
    ]
    return f"PersistentVolumeClaim {each.claim.metadata.name} is used by VMI {machines[0]}" if machines else ""


def is_filled(claim: PersistentVolumeClaim, sight: Sight) -> bool:
    """One that a DataVolume owns, when that has succeeded; any other always."""
    owner = next((ref for ref in claim.metadata.owner_references if ref.kind == "DataVolume"), None)
    if owner is None:
        return True
    volume = sight.data_volume(f"{claim.metadata.namespace}/{owner.name}")
    return volume is not None and volume.status.phase == DONE


def is_disk(claim: PersistentVolumeClaim, sight: Sight) -> bool:
    """A device, or what a DataVolume says is a disk."""
    if claim.spec.volume_mode == names.VOLUME_MODE_BLOCK:
        return True
    content = claim.metadata.annotations.get(KEY_CONTENT_TYPE)
    if content is not None:
        return content in _DISK_CONTENT
    owner = next((ref for ref in claim.metadata.owner_references if ref.kind == "DataVolume"), None)
    volume = sight.data_volume(f"{claim.metadata.namespace}/{owner.name}") if owner is not None else None
    return volume is not None and volume.spec.get("contentType", "") in _DISK_CONTENT


def users_of(key: str, sight: Sight) -> list[str]:
    """Who may be writing to it."""
    namespace, _, name = key.partition("/")
    found = [f"VMI {vmi.metadata.name}" for vmi in sight.machines(key) if not is_final(vmi)]
    for pod in sight.pods(namespace):
        ended, reads = pod.status.phase in _ENDED, pod.metadata.labels.get(names.LABEL_APP) in _NO_USERS
        if not ended and not reads and name in _claims(pod):
            found.append(f"Pod {pod.metadata.name}")
    return found


def _claims(pod: Pod) -> set[str]:
    return {v.persistent_volume_claim.claim_name for v in pod.spec.volumes if v.persistent_volume_claim is not None}
