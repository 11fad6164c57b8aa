"""Helpers of the admission tests: sends an object through both webhooks as the API server does.

The rules are tested as if all features were built; `TODAY_HOOKS` have the door in front of them as it is today.
"""

from __future__ import annotations

import base64
import copy
from dataclasses import dataclass, field
from typing import Any

import msgspec
from framework.supported import ALL_GATES, COMPLETE

from virt_api.admission.cluster import NoCluster
from virt_api.admission.instancetypes import LibraryInstancetypes
from virt_api.admission.review import Admitter, answer
from virt_api.admission.routes import Parts, webhooks
from virt_core.apis import names
from virt_core.apis.support.table import TODAY, Support
from virt_core.kube.configvalues import ClusterConfig
from virt_core.runtime.clock import FakeClock

CONFIG = ClusterConfig(default_architecture="amd64", feature_gates=ALL_GATES)
TRUSTED = frozenset(names.service_account_user(name) for name in names.SERVICE_ACCOUNTS)
HANDLER = names.service_account_user(names.SA_HANDLER)
CONTROLLER = names.service_account_user(names.SA_CONTROLLER)


def hooks(cluster: Any = None, config: ClusterConfig = CONFIG, support: Support = COMPLETE) -> dict[str, Admitter]:
    """All webhooks, over a cluster in which there is nothing else by default."""
    found = cluster or NoCluster()
    types = LibraryInstancetypes(found, lambda: config)
    return webhooks(Parts(lambda: config, FakeClock(), found, types, support=support))


HOOKS = hooks()
TODAY_HOOKS = hooks(config=ClusterConfig(default_architecture="amd64"), support=TODAY)
MUTATOR = HOOKS["/virtualmachineinstances-mutate"]
CREATE = HOOKS["/virtualmachineinstances-validate-create"]
UPDATE = HOOKS["/virtualmachineinstances-validate-update"]
#: kind → its webhooks for a create, in order
ON_CREATE: dict[str, tuple[str, ...]] = {
    "VirtualMachineInstance": ("/virtualmachineinstances-mutate", "/virtualmachineinstances-validate-create"),
    "VirtualMachine": ("/virtualmachines-mutate", "/virtualmachines-validate"),
    "VirtualMachineInstanceMigration": ("/migration-mutate-create", "/migration-validate-create"),
    "VirtualMachineInstanceReplicaSet": ("/virtualmachinereplicaset-validate",),
    "VirtualMachineInstancePreset": ("/vmipreset-validate",),
    "VirtualMachinePool": ("/virtualmachinepool-validate",),
    "VirtualMachineInstancetype": ("/virtualmachineinstancetypes-validate",),
    "VirtualMachineClusterInstancetype": ("/virtualmachineclusterinstancetypes-validate",),
    "VirtualMachinePreference": ("/virtualmachinepreferences-validate",),
    "VirtualMachineClusterPreference": ("/virtualmachineclusterpreferences-validate",),
    "MigrationPolicy": ("/migration-policy-validate-create",),
    "KubeVirt": ("/kubevirt-validate-create",),
    "VirtualMachineClone": ("/vm-clone-mutate-create", "/vm-clone-validate-create"),
    "VirtualMachineSnapshot": ("/virtualmachinesnapshots-validate",),
    "VirtualMachineSnapshotContent": ("/virtualmachinesnapshotcontents-validate",),
    "VirtualMachineRestore": ("/virtualmachinerestores-validate",),
    "VirtualMachineExport": ("/virtualmachineexports-validate",),
    "VirtualMachineBackup": ("/virtualmachinebackups-validate",),
    "VirtualMachineBackupTracker": ("/virtualmachinebackuptrackers-validate",),
}


@dataclass
class Verdict:
    code: int
    causes: list[tuple[str, str]] = field(default_factory=list)
    admitted: dict[str, Any] = field(default_factory=dict)
    message: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def fields(self) -> list[str]:
        return [name for name, _ in self.causes]


def review(
    admit: Admitter,
    obj: dict[str, Any],
    *,
    old: dict[str, Any] | None = None,
    user: str = "alice",
    extra: dict[str, list[str]] | None = None,
) -> dict[str, Any]:
    """One review; the response part of the answer."""
    request = {
        "uid": "r1",
        "kind": {"group": "kubevirt.io", "version": "v1", "kind": obj.get("kind", "VirtualMachineInstance")},
        "namespace": _text(obj, "namespace"),
        "name": _text(obj, "name"),
        "operation": "UPDATE" if old is not None else "CREATE",
        "userInfo": {"username": user, "extra": extra or {}},
        "object": obj,
        "oldObject": old,
    }
    body = msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    response: dict[str, Any] = msgspec.json.decode(answer(body, admit))["response"]
    assert response["uid"] == "r1"
    return response


def _text(obj: dict[str, Any], key: str) -> str:
    value = obj.get("metadata", {}).get(key, "")
    return value if isinstance(value, str) else ""


def patched(obj: dict[str, Any], response: dict[str, Any]) -> dict[str, Any]:
    """The object after the response's patch; our patches only set or remove top-level members."""
    result = copy.deepcopy(obj)
    for op in msgspec.json.decode(base64.b64decode(response.get("patch", ""))) if "patch" in response else []:
        member = op["path"].removeprefix("/")
        if op["op"] == "remove":
            del result[member]
        else:
            result[member] = op["value"]
    return result


def create(obj: dict[str, Any], user: str = "alice", using: dict[str, Admitter] | None = None) -> Verdict:
    """Mutating, then validating, as the API server does for a create."""
    warnings: list[str] = []
    for path in ON_CREATE[obj["kind"]]:
        response = review((using or HOOKS)[path], obj, user=user)
        if not response["allowed"]:
            return refused(response)
        obj = patched(obj, response)
        warnings += response.get("warnings", [])
    return Verdict(201, admitted=obj, warnings=warnings)


def update(
    obj: dict[str, Any], old: dict[str, Any], path: str, user: str = "alice", using: dict[str, Admitter] | None = None
) -> Verdict:
    """One webhook of an update."""
    response = review((using or HOOKS)[path], obj, old=old, user=user)
    if not response["allowed"]:
        return refused(response)
    return Verdict(200, admitted=patched(obj, response), warnings=response.get("warnings", []))


def refused(response: dict[str, Any]) -> Verdict:
    status = response["status"]
    causes = [(c.get("field", ""), c["reason"]) for c in status.get("details", {}).get("causes", [])]
    return Verdict(status["code"], causes, message=status["message"])


def vmi(**spec: Any) -> dict[str, Any]:
    """A VMI that is accepted: one container disk, one NIC. Keywords replace parts of its spec."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {
            "domain": {
                "memory": {"guest": "128Mi"},
                "devices": {
                    "disks": [{"name": "d0", "disk": {"bus": "virtio"}}],
                    "interfaces": [{"name": "default", "masquerade": {}}],
                },
            },
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "d0", "containerDisk": {"image": "localhost/guest:1"}}],
            **spec,
        },
    }


def vm(**spec: Any) -> dict[str, Any]:
    """A VM that is accepted. Keywords replace parts of its spec."""
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {
            "runStrategy": "Halted",
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": vmi()["spec"]},
            **spec,
        },
    }
