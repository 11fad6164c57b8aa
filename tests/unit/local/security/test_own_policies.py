"""Who may make a Pod one of a machine, what virt-controller may change of a node, and that the chart says the same."""

from __future__ import annotations

import re
from typing import Any

import pytest
from framework.helm import CHART
from framework.stored import admission

from virt_core.apis import names
from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest, User
from virt_local.apiserver.security.own_policies import ANNOTATIONS, CONTROLLER, LABELS, confine

TENANT = User("tenant")
POLICIES = (CHART / "templates" / "policies.yaml").read_text()
OWNER = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "m", "uid": "u", "controller": True}
MARKED: list[dict[str, Any]] = [
    {"ownerReferences": [OWNER]},
    {"ownerReferences": [{**OWNER, "kind": "VirtualMachinePool", "apiVersion": "kubevirt.io/v1alpha3"}]},
    {"labels": {"kubevirt.io": "virt-launcher"}},
    {"labels": {"kubevirt.io": "hotplug-disk"}},
    {"labels": {"kubevirt.io/created-by": "u"}},
    {"labels": {"kubevirt.io/migrationJobUID": "u"}},
    {"annotations": {"kubevirt.io/ephemeral-provisioning": "true"}},
    {"annotations": {"kubevirt.io/domain": "m"}},
]
UNMARKED: list[dict[str, Any]] = [
    {},
    {"labels": None, "annotations": None, "ownerReferences": None},
    {"labels": {"kubevirt.io": "virt-api", "vm.kubevirt.io/name": "m"}},
    {"ownerReferences": [{**OWNER, "controller": False}, {**OWNER, "apiVersion": "apps/v1"}]},
    {"ownerReferences": [{**OWNER, "apiVersion": "cdi.kubevirt.io/v1beta1"}]},
]


def refusal(request: AdmissionRequest) -> str:
    try:
        confine(request)
    except errors.ApiError as refused:
        return refused.message
    return ""


def pod(metadata: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "x", **metadata}, "spec": {}}


@pytest.mark.parametrize("metadata", MARKED, ids=str)
def test_only_virt_controller_makes_a_pod_one_of_a_machine(metadata: dict[str, Any]) -> None:
    made, plain = pod(metadata), pod({})
    assert "only virt-controller may" in refusal(admission(obj=made, user=TENANT))
    assert "only virt-controller may" in refusal(admission("UPDATE", obj=made, old=plain, user=TENANT))
    by_status = admission("UPDATE", obj=made, old=plain, user=TENANT, subresource="status")
    assert "only virt-controller may" in refusal(by_status)
    assert refusal(admission(obj=made, user=User(CONTROLLER))) == ""
    # What it is already it stays, and the garbage collector takes it off.
    assert refusal(admission("UPDATE", obj=made, old=made, user=TENANT)) == ""
    assert refusal(admission("UPDATE", obj=plain, old=made, user=TENANT)) == ""


@pytest.mark.parametrize("metadata", UNMARKED, ids=str)
def test_other_pods_are_their_makers(metadata: dict[str, Any]) -> None:
    assert refusal(admission(obj=pod(metadata), user=TENANT)) == ""


def test_one_owner_is_not_changed_for_another() -> None:
    theirs = pod({"ownerReferences": [{**OWNER, "uid": "other"}]})
    assert refusal(admission("UPDATE", obj=theirs, old=pod({"ownerReferences": [OWNER]}), user=TENANT))
    claimed = pod({"labels": {"kubevirt.io/created-by": "other"}})
    assert refusal(admission("UPDATE", obj=claimed, old=pod({"labels": {"kubevirt.io/created-by": "u"}}), user=TENANT))


def node(labels: dict[str, str] | None = None, spec: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "labels": labels or {}, **metadata}, "spec": spec or {}}


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (node({"kubevirt.io/schedulable": "false", "a": "b"}), ""),
        (node({"kubevirt.io/schedulable": "true", "a": "b"}), ""),
        (node({"kubevirt.io/schedulable": "yes", "a": "b"}), "only to false"),
        (node({"kubevirt.io/schedulable": "false"}), "only to false"),
        (node({"a": "b"}), "only to false"),
        (node({"kubevirt.io/schedulable": "false", "a": "c"}), "only to false"),
        (node({"kubevirt.io/schedulable": "true", "a": "b"}, {"unschedulable": True}), "spec of a node"),
        (node({"kubevirt.io/schedulable": "true", "a": "b"}, annotations={"x": "y"}), "annotations"),
        (node({"kubevirt.io/schedulable": "true", "a": "b"}, finalizers=["x/y"]), "finalizers"),
    ],
)
def test_virt_controller_withdraws_a_node_and_nothing_else(new: dict[str, Any], told: str) -> None:
    old = node({"kubevirt.io/schedulable": "true", "a": "b"})
    asked = admission("UPDATE", "nodes", kind="Node", obj=new, old=old, user=User(CONTROLLER), name="n1", namespace="")
    said = refusal(asked)
    assert told in said
    assert bool(told) is bool(said)
    others = admission("UPDATE", "nodes", kind="Node", obj=new, old=old, user=TENANT, name="n1", namespace="")
    assert refusal(others) == "", "RBAC's business"


def test_the_chart_says_the_same() -> None:
    """In one file for each of two engines: what one knows, the other must know too."""
    policy = POLICIES[POLICIES.index("name: virtpod-launcher-pods") :]
    policy = policy[: policy.index("ValidatingAdmissionPolicyBinding")]
    listed = [re.findall(r'"([^"]+)"', part) for part in re.findall(r"\[([^\]]+)\]\s*\.filter", policy)]
    assert sorted(key for keys in listed for key in keys) == sorted([*LABELS, *ANNOTATIONS])
    values = re.search(r"labels\[k\] in \[([^\]]+)\]", policy)
    assert values is not None
    assert set(re.findall(r'"([^"]+)"', values[1])) == LABELS[names.LABEL_APP]
    for message in ("may make a Pod that a kind of kubevirt.io controls", "may mark a Pod as one of a machine, by "):
        assert f"only virt-controller {message}" in policy
