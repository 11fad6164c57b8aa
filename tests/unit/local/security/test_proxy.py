"""What travels to other servers: endpoints, headers, paths, discovery."""

from __future__ import annotations

from typing import Any

import pytest
from framework.stored import FakeSource, meta
from multidict import CIMultiDict, CIMultiDictProxy

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import User
from virt_local.apiserver.proxy.discovery import group_discovery
from virt_local.apiserver.proxy.headers import forwarded, identity
from virt_local.apiserver.proxy.node import agent_path
from virt_local.apiserver.security.endpoints import NoEndpoint, Resolver

POD: dict[str, Any] = {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [{"name": "a"}]}}


def slice_of(name: str, ready: bool, address: str = "127.0.0.1") -> dict[str, Any]:
    return {
        "metadata": meta(name, "ns", labels={"kubernetes.io/service-name": "svc"}),
        "ports": [{"name": "https", "port": 8443}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}],
    }


def test_a_service_is_found_through_its_ready_endpoints() -> None:
    source = FakeSource()
    resolver = Resolver(source)
    with pytest.raises(NoEndpoint) as caught:
        resolver.resolve("ns", "svc", 443)
    assert caught.value.reason == "ServiceNotFound"
    source.put("services", {"metadata": meta("svc", "ns"), "spec": {"ports": [{"name": "https", "port": 443}]}})
    source.put("endpointslices.discovery.k8s.io", slice_of("s1", ready=False))
    with pytest.raises(NoEndpoint) as caught:
        resolver.resolve("ns", "svc", 443)
    assert caught.value.reason == "MissingEndpoints"
    source.put("endpointslices.discovery.k8s.io", slice_of("s2", ready=True, address="10.0.0.7"))
    found = resolver.resolve("ns", "svc", 443)
    assert (found.base, found.server_name) == ("https://10.0.0.7:8443", "svc.ns.svc")
    with pytest.raises(NoEndpoint) as caught:
        resolver.resolve("ns", "svc", 80)
    assert caught.value.reason == "ServicePortError"


def test_credentials_and_claims_stay_here() -> None:
    """A client must not be able to say who it is to a server that believes our headers."""
    sent = {
        "Authorization": "Bearer secret",
        "X-Remote-User": "admin",
        "X-Remote-Group": "system:masters",
        "Impersonate-User": "admin",
        "Accept": "application/json",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Protocol": "plain.kubevirt.io, base64url.bearer.authorization.k8s.io.c2VjcmV0",
    }
    kept = forwarded(CIMultiDictProxy(CIMultiDict(sent)), upgrade=True)
    assert dict(kept) == {
        "Accept": "application/json",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Protocol": "plain.kubevirt.io",
    }
    assert "Upgrade" not in forwarded(CIMultiDictProxy(CIMultiDict(sent)))


def test_identity_headers() -> None:
    said = identity(User("alice", ("a", "b"), "7", {"example.org/k": ("v",)}))
    assert said.getall("X-Remote-Group") == ["a", "b"]
    assert said["X-Remote-User"] == "alice"
    assert said["X-Remote-Extra-example.org%2Fk"] == "v"


@pytest.mark.parametrize(
    ("subresource", "query", "path"),
    [
        ("log", [("follow", "true")], "/containerLogs/ns/p/a?follow=true"),
        (
            "exec",
            [("command", "sh"), ("command", "-c"), ("stdin", "true"), ("stdout", "true"), ("container", "a")],
            "/exec/ns/p/a?command=sh&command=-c&input=true&output=true",
        ),
        ("portforward", [("ports", "80")], "/portForward/ns/p?ports=80"),
    ],
)
def test_the_agents_paths(subresource: str, query: list[tuple[str, str]], path: str) -> None:
    assert agent_path(POD, subresource, query) == path


def test_a_container_must_be_one_of_the_pods() -> None:
    with pytest.raises(errors.ApiError, match=r"container \.\./x is not valid for pod p"):
        agent_path(POD, "log", [("container", "../x")])
    two = {**POD, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
    with pytest.raises(errors.ApiError, match=r"choose one of: \[a b\]"):
        agent_path(two, "log", [])


def test_discovery_of_subresources_without_their_parent() -> None:
    listed = {"resources": [{"name": "vmis/console", "namespaced": True, "kind": "VMI", "verbs": ["get"]}]}
    entry = group_discovery("sub.example", {"v1": listed})
    (resource,) = entry["versions"][0]["resources"]
    assert resource["resource"] == "vmis"
    assert resource["verbs"] == []
    assert resource["subresources"][0]["subresource"] == "console"
    assert resource["subresources"][0]["responseKind"] == {"group": "", "version": "", "kind": "VMI"}
