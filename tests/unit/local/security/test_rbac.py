"""Role-based access control: what rules allow, how bindings reach users, how aggregation follows labels."""

from __future__ import annotations

from typing import Any

import pytest

from virt_local.apiserver.hooks import Attributes, User
from virt_local.apiserver.security.bootstrap_roles import bootstrap_objects
from virt_local.apiserver.security.rbac import RbacIndex

ALICE = User("alice", ("devs", "system:authenticated"))
BOT = User("system:serviceaccount:ns1:bot", ("system:serviceaccounts",))


def rule(verbs: str, resources: str, groups: str = "", names: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {
        "verbs": verbs.split(","),
        "resources": resources.split(","),
        "apiGroups": groups.split(","),
    }
    return made | ({"resourceNames": names.split(",")} if names else {})


def role(
    name: str, *rules: dict[str, Any], namespace: str = "", labels: dict[str, str] | None = None
) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels or {}}, "rules": list(rules)}


def binding(kind: str, role_name: str, *subjects: dict[str, str], namespace: str = "") -> dict[str, Any]:
    ref = {"kind": kind, "name": role_name}
    return {"metadata": {"name": f"b-{role_name}", "namespace": namespace}, "roleRef": ref, "subjects": list(subjects)}


def ask(verb: str, resource: str, namespace: str = "ns1", **more: str) -> Attributes:
    sub = resource.partition("/")
    return Attributes(
        verb=verb, is_resource=True, resource=sub[0], subresource=sub[2], namespace=namespace, version="v1", **more
    )


def index_with(the_role: dict[str, Any], the_binding: dict[str, Any]) -> RbacIndex:
    index = RbacIndex()
    index.put("ClusterRole" if not the_role["metadata"]["namespace"] else "Role", the_role)
    index.put("RoleBinding" if the_binding["metadata"]["namespace"] else "ClusterRoleBinding", the_binding)
    return index


def test_nothing_is_allowed_without_a_binding() -> None:
    assert not RbacIndex().authorize(ALICE, ask("get", "pods")).allowed


def test_masters_need_no_rule() -> None:
    assert RbacIndex().authorize(User("root", ("system:masters",)), ask("delete", "nodes", "")).allowed


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (ask("get", "pods"), True),
        (ask("get", "pods", "ns2"), False),
        (ask("get", "pods", ""), False),
        (ask("delete", "pods"), False),
        (ask("get", "pods/log"), False),
        (ask("get", "pods", group="apps"), False),
    ],
)
def test_a_role_binding_counts_in_its_namespace_only(asked: Attributes, allowed: bool) -> None:
    """A rule on pods neither covers another namespace nor a subresource."""
    index = index_with(
        role("r", rule("get,list", "pods"), namespace="ns1"),
        binding("Role", "r", {"kind": "Group", "name": "devs"}, namespace="ns1"),
    )
    assert index.authorize(ALICE, asked).allowed is allowed


def test_a_cluster_role_bound_in_a_namespace_stays_there() -> None:
    index = index_with(
        role("r", rule("*", "*", "*")),
        binding("ClusterRole", "r", {"kind": "ServiceAccount", "name": "bot"}, namespace="ns1"),
    )
    assert index.authorize(BOT, ask("delete", "secrets")).allowed
    assert not index.authorize(BOT, ask("delete", "secrets", "ns2")).allowed


@pytest.mark.parametrize(
    ("pattern", "resource", "allowed"),
    [
        ("pods/log", "pods/log", True),
        ("*/log", "pods/log", True),
        ("*", "pods/log", True),
        ("pods/*", "pods/log", False),
    ],
)
def test_subresource_patterns(pattern: str, resource: str, allowed: bool) -> None:
    index = index_with(role("r", rule("get", pattern)), binding("ClusterRole", "r", {"kind": "User", "name": "alice"}))
    assert index.authorize(ALICE, ask("get", resource)).allowed is allowed


def test_resource_names_limit_a_rule() -> None:
    index = index_with(
        role("r", rule("get", "secrets", names="one")), binding("ClusterRole", "r", {"kind": "User", "name": "alice"})
    )
    assert index.authorize(ALICE, ask("get", "secrets", name="one")).allowed
    assert not index.authorize(ALICE, ask("get", "secrets", name="two")).allowed
    assert not index.authorize(ALICE, ask("list", "secrets")).allowed


def test_urls() -> None:
    urls = {"verbs": ["get"], "nonResourceURLs": ["/metrics", "/logs/*"]}
    index = index_with(role("r", urls), binding("ClusterRole", "r", {"kind": "User", "name": "alice"}))
    allowed = {
        path: index.authorize(ALICE, Attributes(verb="get", path=path)).allowed
        for path in ("/metrics", "/logs/a", "/x")
    }
    assert allowed == {"/metrics": True, "/logs/a": True, "/x": False}


def test_a_changed_role_counts_at_once() -> None:
    index = index_with(role("r", rule("get", "pods")), binding("ClusterRole", "r", {"kind": "User", "name": "alice"}))
    assert index.authorize(ALICE, ask("get", "pods")).allowed
    index.put("ClusterRole", role("r", rule("get", "nodes")))
    assert not index.authorize(ALICE, ask("get", "pods")).allowed
    index.remove("ClusterRole", role("r"))
    assert not index.authorize(ALICE, ask("get", "nodes")).allowed


def test_aggregation_follows_labels_through_levels() -> None:
    """`admin` has what `view` has, and what a later role with the right label adds."""
    index = RbacIndex()
    for obj in bootstrap_objects():
        index.put(obj["kind"], obj)
    index.put("ClusterRoleBinding", binding("ClusterRole", "admin", {"kind": "User", "name": "alice"}))
    vmis = ask("get", "virtualmachineinstances", group="kubevirt.io")
    assert index.authorize(ALICE, ask("list", "configmaps")).allowed
    assert index.authorize(ALICE, ask("create", "rolebindings", group="rbac.authorization.k8s.io")).allowed
    assert not index.authorize(ALICE, vmis).allowed
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    index.put("ClusterRole", role("vm-view", rule("get", "virtualmachineinstances", "kubevirt.io"), labels=label))
    assert index.authorize(ALICE, vmis).allowed


def test_view_shows_no_secrets() -> None:
    index = RbacIndex()
    for obj in bootstrap_objects():
        index.put(obj["kind"], obj)
    index.put("ClusterRoleBinding", binding("ClusterRole", "view", {"kind": "User", "name": "alice"}))
    assert index.authorize(ALICE, ask("get", "pods")).allowed
    assert not index.authorize(ALICE, ask("get", "secrets")).allowed
