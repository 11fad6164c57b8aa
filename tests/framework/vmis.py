"""VMIs and launcher Pods for unit tests, as the programs before the one under test leave them."""

from __future__ import annotations

from typing import Any

from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance

UID = "11111111-2222-3333-4444-555555555555"
POD_UID = "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
NODE = "node1"
CREATED = "2026-01-01T00:00:00Z"


def plain_vmi(name: str = "vm", phase: str = names.PHASE_PENDING, **changes: Any) -> dict[str, Any]:
    """`status`, `metadata` and `spec` in `changes` are laid over the defaults."""
    vmi: dict[str, Any] = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": UID,
            "resourceVersion": "1",
            "creationTimestamp": CREATED,
            "finalizers": [names.FINALIZER_VMI],
        },
        "spec": {
            "domain": {
                "memory": {"guest": "128Mi"},
                "devices": {
                    "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "containerDisk": {"image": "example.internal/guest:v1"}}],
        },
        "status": {
            "phase": phase,
            "phaseTransitionTimestamps": [{"phase": "Pending", "phaseTransitionTimestamp": CREATED}],
            "handoffs": [{"name": "accepted", "owner": "virt-api", "time": "2026-01-01T00:00:00.000000Z"}],
        },
    }
    for part in ("metadata", "spec", "status"):
        vmi[part] |= changes.get(part, {})
    return vmi


def vmi(name: str = "vm", phase: str = names.PHASE_PENDING, **changes: Any) -> VirtualMachineInstance:
    return from_plain(plain_vmi(name, phase, **changes), VirtualMachineInstance)


def handed_over(phase: str = names.PHASE_SCHEDULED, **changes: Any) -> VirtualMachineInstance:
    """On its node, as virt-controller leaves it."""
    status = {
        "nodeName": NODE,
        "activePods": {POD_UID: NODE},
        "handoffs": [{"name": "handed-over", "owner": "virt-controller", "time": "2026-01-01T00:00:00.000000Z"}],
    } | changes.pop("status", {})
    metadata = {"labels": {names.LABEL_NODE_NAME: NODE}} | changes.pop("metadata", {})
    return vmi("vm", phase, status=status, metadata=metadata, **changes)


def plain_pod(
    owner_uid: str = UID, phase: str = "Pending", state: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "virt-launcher-vm-abcde",
            "namespace": "default",
            "uid": POD_UID,
            "creationTimestamp": CREATED,
            "labels": {names.LABEL_APP: names.APP_LAUNCHER, names.LABEL_CREATED_BY: owner_uid},
            "ownerReferences": [
                {
                    "apiVersion": "kubevirt.io/v1",
                    "kind": "VirtualMachineInstance",
                    "name": "vm",
                    "uid": owner_uid,
                    "controller": True,
                }
            ],
        },
        "spec": {
            "nodeName": NODE,
            "containers": [{"name": "compute", "image": "example.internal/launcher:v1"}],
            "volumes": [{"name": "disk-0", "image": {"reference": "example.internal/guest:v1"}}],
        },
        "status": {"phase": phase, "qosClass": "Burstable"},
    }
    if state is not None:
        pod["status"]["containerStatuses"] = [{"name": "compute", "state": state}]
    for part in ("metadata", "spec", "status"):
        pod[part] |= changes.get(part, {})
    return pod


def pod(owner_uid: str = UID, phase: str = "Pending", state: dict[str, Any] | None = None, **changes: Any) -> Pod:
    return from_plain(plain_pod(owner_uid, phase, state, **changes), Pod)


RUNNING_STATE = {"running": {"startedAt": "2026-01-01T00:00:02Z"}}


def running_pod(**changes: Any) -> Pod:
    return pod(phase="Running", state=RUNNING_STATE, **changes)


def ended_pod(exit_code: int = 1, message: str = "", finished: str = "2026-01-01T00:00:05Z", **changes: Any) -> Pod:
    terminated = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed", "finishedAt": finished}
    if message:
        terminated["message"] = message
    return pod(phase="Failed" if exit_code else "Succeeded", state={"terminated": terminated}, **changes)
