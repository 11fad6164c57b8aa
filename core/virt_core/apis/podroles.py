"""What each Pod is to its VMI. Pure, and the only place that says so.

A VMI can have several Pods at once. Which of them is what follows from what the VMI's status records by UID, and, for a
Pod that is not recorded yet, from its controller reference and the migration job that made it; never from its age, and
never from a label alone where it counts: whoever may create Pods may set any label and any owner. A Pod with neither
record nor job is nobody's, whatever it says of itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from virt_core.apis import names
from virt_core.apis.meta import OwnerReference
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus


class Role(Enum):
    #: The guest's vCPUs run there, or will at the first start. Only this side speaks for the VMI.
    ACTIVE = "active"
    #: The guest has left it.
    SOURCE = "source"
    #: The guest is to move there.
    TARGET = "target"
    #: Brings hot-plugged volumes to the node of a launcher.
    ATTACHMENT = "attachment"
    #: The first user of claims that wait for one; ends at once.
    PROVISIONING = "provisioning"


#: Those whose Pods have a launcher.
LAUNCHERS = frozenset({Role.ACTIVE, Role.SOURCE, Role.TARGET})


@dataclass(frozen=True, slots=True)
class PodRole:
    """One Pod of a VMI: which, where, and what for."""

    uid: str
    #: Empty: no node has it yet.
    node: str
    role: Role


def recorded(vmi: VirtualMachineInstance) -> dict[str, PodRole]:
    """The Pods that the VMI's status names, by UID: all that a node has to know."""
    status = vmi.status
    found = [PodRole(uid, node, _role_at(status, node)) for uid, node in status.active_pods.items()]
    if sum(each.role is Role.ACTIVE for each in found) > 1:
        # Nobody could say which of them is the guest's, so none of them acts.
        found = [each for each in found if each.role is not Role.ACTIVE]
    return {each.uid: each for each in (*_first_user(status), *_attachments(status), *found)}


def _role_at(status: VirtualMachineInstanceStatus, node: str) -> Role:
    if not status.node_name or node == status.node_name:
        return Role.ACTIVE
    move = status.migration_state
    return Role.TARGET if move is not None and node == move.target_node else Role.SOURCE


def _first_user(status: VirtualMachineInstanceStatus) -> Iterator[PodRole]:
    if status.provisioning_pod_uid:
        yield PodRole(status.provisioning_pod_uid, "", Role.PROVISIONING)


def _attachments(status: VirtualMachineInstanceStatus) -> Iterator[PodRole]:
    move = status.migration_state
    if move is not None and move.target_attachment_pod_uid:
        yield PodRole(move.target_attachment_pod_uid, move.target_node, Role.ATTACHMENT)
    for volume in status.volume_status:
        if volume.hotplug_volume is not None and volume.hotplug_volume.attach_pod_uid:
            yield PodRole(volume.hotplug_volume.attach_pod_uid, status.node_name, Role.ATTACHMENT)


def active(vmi: VirtualMachineInstance) -> PodRole | None:
    """The one Pod that has the guest."""
    return next((each for each in recorded(vmi).values() if each.role is Role.ACTIVE), None)


def launchers_on(vmi: VirtualMachineInstance, node: str) -> list[PodRole]:
    """The launchers of the VMI that one node has."""
    return [each for each in recorded(vmi).values() if each.node == node and each.role in LAUNCHERS]


def role_of(pod: Pod, vmi: VirtualMachineInstance) -> Role | None:
    """None: it is not a Pod of this VMI, though it may say so."""
    known = recorded(vmi).get(pod.metadata.uid)
    if known is not None:
        return known.role
    if owner_uid(pod) != vmi.metadata.uid:
        return None
    return Role.TARGET if pod.metadata.labels.get(names.LABEL_MIGRATION_JOB_UID) else None


def having(role: Role, vmi: VirtualMachineInstance, pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if role_of(pod, vmi) is role]


def active_pod(vmi: VirtualMachineInstance, pods: Iterable[Pod]) -> Pod | None:
    return next(iter(having(Role.ACTIVE, vmi, pods)), None)


def is_stranger(pod: Pod, vmi: VirtualMachineInstance) -> bool:
    """Looks like a launcher of this VMI and is none: one that was made and never recorded, or somebody's false one."""
    looks_so = pod.metadata.labels.get(names.LABEL_APP) == names.APP_LAUNCHER and owner_uid(pod) == vmi.metadata.uid
    return looks_so and role_of(pod, vmi) is None


def controller_of(pod: Pod) -> OwnerReference | None:
    return next((ref for ref in pod.metadata.owner_references if ref.controller), None)


def owner_uid(pod: Pod) -> str:
    """The UID of the VMI that controls the Pod, or nothing."""
    ref = controller_of(pod)
    if ref is None or ref.kind != "VirtualMachineInstance" or not ref.api_version.startswith(f"{names.GROUP}/"):
        return ""
    return ref.uid
