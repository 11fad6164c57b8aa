"""What the cluster may ask of a running machine: that it leaves its node, or gets a newer launcher. Pure."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.vmistatus import with_condition, without_condition


def launcher_image(pod: Pod) -> str:
    return next((each.image for each in pod.spec.containers if each.name == names.CONTAINER_COMPUTE), "")


def is_outdated(vmi: VirtualMachineInstance, current: str) -> bool:
    """Whether it runs in a launcher of another image than a new machine would."""
    return bool(current) and vmi.status.launcher_container_image_version not in ("", current)


def follow(vmi: VirtualMachineInstance, pod: Pod, current: str, now: datetime) -> VirtualMachineInstance:
    """`pod` is the one that has the guest, `current` the image of new launchers."""
    return _with_eviction(_with_launcher(vmi, pod, current), now)


def _with_launcher(vmi: VirtualMachineInstance, pod: Pod, current: str) -> VirtualMachineInstance:
    if not current:
        return vmi
    told = replace(vmi, status=replace(vmi.status, launcher_container_image_version=launcher_image(pod)))
    labels = {key: value for key, value in vmi.metadata.labels.items() if key != names.LABEL_OUTDATED_LAUNCHER}
    if is_outdated(told, current):
        labels[names.LABEL_OUTDATED_LAUNCHER] = ""
    return replace(told, metadata=replace(told.metadata, labels=labels))


def _with_eviction(vmi: VirtualMachineInstance, now: datetime) -> VirtualMachineInstance:
    """Who asked for it is of no interest once it may stay, or has left."""
    kind, node = names.CONDITION_EVICTION_REQUESTED, vmi.status.evacuation_node_name
    if node:
        text = f"it was asked to leave node {node}"
        return replace(vmi, status=with_condition(vmi.status, kind, names.TRUE, kind, text, now=now))
    source = names.ANNOTATION_EVICTION_SOURCE
    annotations = {key: value for key, value in vmi.metadata.annotations.items() if key != source}
    meta = replace(vmi.metadata, annotations=annotations)
    return replace(vmi, metadata=meta, status=without_condition(vmi.status, kind))
