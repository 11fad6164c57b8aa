"""How far each hot-plugged volume is, as virt-controller sees it; virt-handler tells the rest. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from virt_controller.hotplug.decide import Pods, is_over, is_ready
from virt_controller.hotplug.wanted import Storage, Wanted, claims_of
from virt_core.apis import names
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import HotplugVolumeStatus, PersistentVolumeClaimInfo, VolumeStatus

_BEGINNING = frozenset({"", names.VOLUME_PENDING, names.VOLUME_BOUND})
#: A volume that comes back while it still goes begins anew.
_GOING = frozenset({names.VOLUME_DETACHING, names.VOLUME_UNMOUNTED})
_MEMORY_DUMP = "MemoryDump"


def statuses(vmi: VirtualMachineInstance, wanted: Sequence[Wanted], storage: Storage, pods: Pods) -> list[VolumeStatus]:
    """All volumes of the VMI, sorted by name."""
    known = {status.name: status for status in vmi.status.volume_status}
    for each in wanted:
        known[each.name] = _coming(known.get(each.name) or VolumeStatus(name=each.name), each, storage, pods)
    going = [s for s in known.values() if s.hotplug_volume is not None and s.name not in {w.name for w in wanted}]
    for status in going:
        if (kept := _going(status, [*pods.old, *([pods.current] if pods.current else [])])) is None:
            del known[status.name]
        else:
            known[status.name] = kept
    return [known[name] for name in sorted(known)]


def _coming(status: VolumeStatus, each: Wanted, storage: Storage, pods: Pods) -> VolumeStatus:
    if status.phase in _GOING:
        status = VolumeStatus(name=status.name)
    claim, pod = storage.claims.get(each.claim), _holder(each.claim, pods)
    info = claim_info(claim) if claim is not None else status.persistent_volume_claim_info
    status = replace(status, hotplug_volume=_plugged(pod), persistent_volume_claim_info=info)
    if status.phase not in _BEGINNING:
        return status
    if claim is None:
        words = f"PVC {each.claim} not found"
        return _said(status, names.VOLUME_PENDING, names.REASON_PVC_NOT_FOUND, words)
    if storage.is_misfit(each):
        words = f"PVC {each.claim} is a block device; a utility volume must have a filesystem"
        return _said(status, names.VOLUME_PENDING, names.REASON_PVC_NOT_READY, words)
    if not storage.is_ready(each.claim):
        return _said(status, names.VOLUME_PENDING, names.REASON_PVC_NOT_READY, _why_not(each.claim, storage))
    if pod is None:
        words = f"PVC is in phase {claim.status.phase}"
        return _said(status, names.VOLUME_BOUND, names.REASON_PVC_NOT_READY, words)
    words = f"Created hotplug attachment pod {pod.metadata.name}, for volume {each.name}"
    return _said(status, names.VOLUME_ATTACHED, names.EVENT_SUCCESSFUL_CREATE, words)


def _why_not(claim: str, storage: Storage) -> str:
    found = storage.claims[claim]
    if found.status.phase == "Bound":
        return f"DataVolume {claim} is in phase {storage.phases.get(claim)}"
    return f"PVC is in phase {found.status.phase or names.VOLUME_PENDING}"


def _going(status: VolumeStatus, pods: Sequence[Pod]) -> VolumeStatus | None:
    """None: it is gone. What is still in the launcher is virt-handler's to take out."""
    if status.phase in names.VOLUME_IN_LAUNCHER or status.phase.startswith(_MEMORY_DUMP):
        return status
    info = status.persistent_volume_claim_info
    holder = next((pod for pod in pods if info is not None and info.claim_name in claims_of(pod)), None)
    if holder is None or is_over(holder):
        return None
    if status.phase == names.VOLUME_DETACHING:
        return status
    words = f"Deleted hotplug attachment pod {holder.metadata.name}, for volume {status.name}"
    return _said(status, names.VOLUME_DETACHING, names.EVENT_SUCCESSFUL_DELETE, words)


def _holder(claim: str, pods: Pods) -> Pod | None:
    """The one that runs, if there is one: virt-handler can take the volume from it."""
    holding = [pod for pod in _living(pods) if claim in claims_of(pod)]
    return next((pod for pod in holding if is_ready(pod)), next(iter(holding), None))


def _living(pods: Pods) -> Iterable[Pod]:
    return (pod for pod in ([pods.current] if pods.current else []) + list(pods.old) if not is_over(pod))


def _plugged(pod: Pod | None) -> HotplugVolumeStatus:
    if pod is None:
        return HotplugVolumeStatus()
    return HotplugVolumeStatus(
        attach_pod_name=pod.metadata.name, attach_pod_uid=pod.metadata.uid if is_ready(pod) else ""
    )


def _said(status: VolumeStatus, phase: str, reason: str, message: str) -> VolumeStatus:
    return replace(status, phase=phase, reason=reason, message=message)


def claim_info(claim: PersistentVolumeClaim) -> PersistentVolumeClaimInfo:
    requests = claim.spec.resources.requests if claim.spec.resources is not None else {}
    return PersistentVolumeClaimInfo(
        claim_name=claim.metadata.name,
        access_modes=claim.status.access_modes or claim.spec.access_modes,
        volume_mode=claim.spec.volume_mode or names.VOLUME_MODE_FILESYSTEM,
        capacity=dict(claim.status.capacity),
        requests=dict(requests),
        preallocated=claim.metadata.annotations.get(names.ANNOTATION_PREALLOCATION) == "true",
    )
