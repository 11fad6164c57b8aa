"""Helpers of the admission tests: sends an object through both webhooks as the API server does."""

from __future__ import annotations

import base64
import copy
from dataclasses import dataclass, field
from typing import Any

import msgspec

from virt_api.admission.mutate import VMIMutator
from virt_api.admission.review import Admitter, answer
from virt_api.admission.validate import VMICreateValidator, VMIUpdateValidator
from virt_api.config import ClusterConfig
from virt_core.apis import names
from virt_core.runtime.clock import FakeClock

CONFIG = ClusterConfig(default_architecture="amd64")
TRUSTED = frozenset(names.service_account_user(name) for name in names.SERVICE_ACCOUNTS)
HANDLER = names.service_account_user(names.SA_HANDLER)
MUTATOR = VMIMutator(CONFIG, FakeClock(), TRUSTED)
CREATE = VMICreateValidator(CONFIG, TRUSTED)
UPDATE = VMIUpdateValidator(CONFIG, TRUSTED, HANDLER)


@dataclass
class Verdict:
    code: int
    causes: list[tuple[str, str]] = field(default_factory=list)
    admitted: dict[str, Any] = field(default_factory=dict)
    message: str = ""

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
        "kind": {"group": "kubevirt.io", "version": "v1", "kind": "VirtualMachineInstance"},
        "name": obj.get("metadata", {}).get("name", ""),
        "operation": "UPDATE" if old is not None else "CREATE",
        "userInfo": {"username": user, "extra": extra or {}},
        "object": obj,
        "oldObject": old,
    }
    body = msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    response: dict[str, Any] = msgspec.json.decode(answer(body, admit))["response"]
    assert response["uid"] == "r1"
    return response


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


def create(obj: dict[str, Any], user: str = "alice") -> Verdict:
    """Mutating, then validating, as the API server does for a create."""
    response = review(MUTATOR, obj, user=user)
    if response["allowed"]:
        obj = patched(obj, response)
        response = review(CREATE, obj, user=user)
    if response["allowed"]:
        return Verdict(201, admitted=obj)
    status = response["status"]
    causes = [(c.get("field", ""), c["reason"]) for c in status["details"].get("causes", [])]
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
