"""What a node may do, and that it cannot touch another node's things."""

from __future__ import annotations

from typing import Any

import pytest
from framework.stored import FakeSource, admission, meta

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import Attributes, User
from virt_local.apiserver.security.node_authorizer import authorize_node, restrict_node

NODE1 = User("system:node:node1", ("system:nodes", "system:authenticated"))
HANDLER = User(
    "system:serviceaccount:virtpod:virt-handler",
    ("system:serviceaccounts",),
    extra={"authentication.kubernetes.io/node-name": ("node1",)},
)


def pod(name: str, node: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": meta(name, "default"), "spec": {"nodeName": node, "containers": [{"name": "c"}], **spec}}


@pytest.fixture
def source() -> FakeSource:
    made = FakeSource()
    volumes = [{"name": "v", "secret": {"secretName": "mine"}}, {"name": "w", "configMap": {"name": "conf"}}]
    made.put("pods", pod("p1", "node1", volumes=volumes))
    made.put("pods", pod("p2", "node2", volumes=[{"name": "v", "secret": {"secretName": "theirs"}}]))
    return made


def allowed(source: FakeSource, user: User, verb: str, resource: str, name: str = "", group: str = "") -> bool:
    main, _, sub = resource.partition("/")
    asked = Attributes(
        verb=verb, is_resource=True, group=group, resource=main, subresource=sub, name=name, namespace="default"
    )
    return authorize_node(source, user, asked).allowed


def test_a_node_reads_only_the_secrets_that_its_pods_use(source: FakeSource) -> None:
    assert allowed(source, NODE1, "get", "secrets", "mine")
    assert allowed(source, NODE1, "get", "configmaps", "conf")
    assert not allowed(source, NODE1, "get", "secrets", "theirs")
    assert not allowed(source, NODE1, "list", "secrets")
    assert not allowed(source, NODE1, "update", "secrets", "mine")


def test_a_node_writes_only_its_own_node_and_lease(source: FakeSource) -> None:
    assert allowed(source, NODE1, "patch", "nodes/status", "node1")
    assert not allowed(source, NODE1, "patch", "nodes/status", "node2")
    assert not allowed(source, NODE1, "patch", "nodes", "node2")
    lease = {"group": "coordination.k8s.io"}
    assert allowed(source, NODE1, "update", "leases", "node1", **lease)
    assert not allowed(source, NODE1, "update", "leases", "node2", **lease)
    assert allowed(source, NODE1, "create", "leases", **lease)


@pytest.mark.parametrize("user", [User("system:node:node1"), User("node1", ("system:nodes",)), User("alice")])
def test_the_name_alone_makes_no_node(source: FakeSource, user: User) -> None:
    assert not allowed(source, user, "list", "pods")


def test_a_node_changes_only_pods_that_run_on_it(source: FakeSource) -> None:
    restrict_node(source, admission("UPDATE", subresource="status", old=pod("p1", "node1"), user=NODE1))
    with pytest.raises(errors.ApiError, match="node1"):
        restrict_node(source, admission("UPDATE", subresource="status", old=pod("p2", "node2"), user=NODE1))
    with pytest.raises(errors.ApiError):
        restrict_node(source, admission("DELETE", old=pod("p2", "node2"), user=NODE1))
    with pytest.raises(errors.ApiError, match="mirror"):
        restrict_node(source, admission("CREATE", obj=pod("p3", "node1"), user=NODE1))


def token_for(name: str, uid: str = "") -> dict[str, Any]:
    return {"spec": {"boundObjectRef": {"kind": "Pod", "name": name, "uid": uid or f"uid-{name}"}}}


def test_a_node_gets_tokens_only_for_pods_that_run_on_it(source: FakeSource) -> None:
    place: dict[str, Any] = {"resource": "serviceaccounts", "subresource": "token", "user": NODE1}
    restrict_node(source, admission("CREATE", obj=token_for("p1"), **place))
    unbound: dict[str, Any] = {"spec": {}}
    for request in (token_for("p2"), token_for("p1", "wrong"), token_for("absent"), unbound):
        with pytest.raises(errors.ApiError):
            restrict_node(source, admission("CREATE", obj=request, **place))


def test_a_handler_touches_only_the_node_that_its_token_names(source: FakeSource) -> None:
    """CVE-2023-26484: a handler that could patch every node could take the cluster."""
    restrict_node(source, admission("UPDATE", "nodes", name="node1", user=HANDLER, namespace=""))
    with pytest.raises(errors.ApiError):
        restrict_node(source, admission("UPDATE", "nodes", name="node2", user=HANDLER, namespace=""))
    unbound = User(HANDLER.name, HANDLER.groups)
    with pytest.raises(errors.ApiError):
        restrict_node(source, admission("UPDATE", "nodes", name="node1", user=unbound, namespace=""))


def test_others_are_not_restricted(source: FakeSource) -> None:
    restrict_node(source, admission("UPDATE", "nodes", name="node2", namespace=""))
