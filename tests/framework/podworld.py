"""Random VMIs with recorded Pods, and random Pods around them, for property tests of whoever decides by roles.

Nothing here is careful: a status may name two Pods on the guest's node, a target that is nowhere, a Pod of no node.
What the programs promise must hold for all of it.
"""

from __future__ import annotations

from typing import Any

from framework.vmis import UID, pod, vmi
from hypothesis import strategies as st

from virt_core.apis import names
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance

NODES = ("node1", "node2", "node3")
POD_UIDS = tuple(f"aaaaaaaa-bbbb-cccc-dddd-00000000000{number}" for number in range(4))
OTHER_UID = "99999999-2222-3333-4444-555555555555"
PHASES = (
    names.PHASE_PENDING,
    names.PHASE_SCHEDULING,
    names.PHASE_SCHEDULED,
    names.PHASE_SCHEDULED,
    names.PHASE_RUNNING,
    names.PHASE_RUNNING,
    names.PHASE_SUCCEEDED,
    names.PHASE_FAILED,
)
DELETED = {"deletionTimestamp": "2026-01-01T00:00:05Z"}

somewhere = st.sampled_from((*NODES, *NODES, ""))


@st.composite
def moves(draw: st.DrawFn) -> dict[str, Any]:
    """A migrationState, finished or not."""
    state: dict[str, Any] = {"targetNode": draw(somewhere), "sourceNode": draw(somewhere)}
    state |= {name: True for name in ("completed", "failed") if draw(st.booleans())}
    if draw(st.booleans()):
        state["targetAttachmentPodUID"] = draw(st.sampled_from(POD_UIDS))
    return {name: value for name, value in state.items() if value}


@st.composite
def vmis(draw: st.DrawFn) -> VirtualMachineInstance:
    """One state of one VMI: always the same UID, so that a list of them is a history."""
    status: dict[str, Any] = {
        "nodeName": draw(somewhere),
        "activePods": draw(st.dictionaries(st.sampled_from(POD_UIDS), somewhere, max_size=3)),
    }
    if draw(st.booleans()):
        status["migrationState"] = draw(moves())
    if draw(st.booleans()):
        attached = {"attachPodName": "hp", "attachPodUID": draw(st.sampled_from(POD_UIDS))}
        status["volumeStatus"] = [{"name": "root", "target": "vda", "hotplugVolume": attached}]
    metadata = DELETED if draw(st.integers(0, 4)) == 0 else {}
    return vmi("vm", draw(st.sampled_from(PHASES)), status=status, metadata=metadata)


@st.composite
def pods(draw: st.DrawFn, uid: str) -> Pod:
    """A Pod that may be anything to the VMI, whatever it says of itself."""
    labels = {names.LABEL_APP: draw(st.sampled_from((names.APP_LAUNCHER, "hotplug-disk", "web")))}
    if draw(st.booleans()):
        labels[names.LABEL_MIGRATION_JOB_UID] = "job-1"
    metadata: dict[str, Any] = {
        "uid": uid,
        "name": f"pod-{uid[-2:]}",
        "labels": labels,
        "creationTimestamp": f"2026-01-01T00:00:0{draw(st.integers(0, 9))}Z",
    }
    if draw(st.booleans()):
        metadata["ownerReferences"] = []
    if draw(st.integers(0, 4)) == 0:
        metadata["annotations"] = {names.ANNOTATION_EPHEMERAL_PROVISIONING: "true"}
    metadata |= DELETED if draw(st.integers(0, 4)) == 0 else {}
    owner = draw(st.sampled_from((UID, UID, OTHER_UID)))
    phase = draw(st.sampled_from(("Pending", "Running", "Succeeded", "Failed")))
    return pod(owner, phase, metadata=metadata, spec={"nodeName": draw(somewhere)})


def pod_lists() -> st.SearchStrategy[list[Pod]]:
    """Own Pods and strangers, recorded by the VMI or not, in any order."""
    uids = st.lists(st.sampled_from((*POD_UIDS, *(uid.replace("a", "f") for uid in POD_UIDS))), unique=True, max_size=5)
    return uids.flatmap(lambda found: st.tuples(*(pods(uid) for uid in found))).map(list)
