"""VMs, replica sets and pools for unit tests."""

from __future__ import annotations

from typing import Any

from framework.vmis import CREATED, plain_vmi

from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance

VM_UID = "99999999-8888-7777-6666-555555555555"


def plain_vm(name: str = "vm", strategy: str = names.STRATEGY_ALWAYS, **changes: Any) -> dict[str, Any]:
    """`status`, `metadata` and `spec` in `changes` are laid over the defaults."""
    vm: dict[str, Any] = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": VM_UID,
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": CREATED,
            "finalizers": [names.FINALIZER_VM_CONTROLLER],
        },
        "spec": {
            "runStrategy": strategy,
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": plain_vmi(name)["spec"]},
        },
        "status": {},
    }
    vm["spec"]["template"]["spec"]["domain"]["firmware"] = {"uuid": "aaaaaaaa-0000-0000-0000-000000000000"}
    for part in ("metadata", "spec", "status"):
        vm[part] |= changes.get(part, {})
    return vm


def vm(name: str = "vm", strategy: str = names.STRATEGY_ALWAYS, **changes: Any) -> VirtualMachine:
    return from_plain(plain_vm(name, strategy, **changes), VirtualMachine)


def owner(uid: str = VM_UID, kind: str = "VirtualMachine", name: str = "vm") -> dict[str, Any]:
    return {"apiVersion": "kubevirt.io/v1", "kind": kind, "name": name, "uid": uid, "controller": True}


def owned_vmi(phase: str = names.PHASE_RUNNING, **changes: Any) -> VirtualMachineInstance:
    """The VM's VMI, as it is in this phase."""
    metadata = {
        "ownerReferences": [owner()],
        "finalizers": [names.FINALIZER_VM_CONTROLLER],
        "annotations": {names.ANNOTATION_VM_GENERATION: "1"},
    } | changes.pop("metadata", {})
    stamps = [{"phase": names.PHASE_PENDING, "phaseTransitionTimestamp": CREATED}]
    if phase == names.PHASE_RUNNING or changes.pop("ran", False):
        stamps.append({"phase": names.PHASE_RUNNING, "phaseTransitionTimestamp": CREATED})
    status = {
        "phaseTransitionTimestamps": stamps,
        "virtualMachineRevisionName": f"revision-start-vm-{VM_UID}-1",
    } | changes.pop("status", {})
    return from_plain(plain_vmi("vm", phase, metadata=metadata, status=status, **changes), VirtualMachineInstance)
