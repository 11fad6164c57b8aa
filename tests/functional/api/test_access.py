"""Every route there is, as nobody and as somebody without the right."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from functional.api.rig import Rig
from functional.api.test_http import BEARER, call

from virt_api.subresources.discovery import REVIEWS, ROOT, VERSIONS
from virt_api.subresources.routes import ROUTES, Route

FORGED = {"X-Remote-User": "system:admin", "X-Remote-Group": "system:masters"}
#: Probes, and nothing else.
OPEN = {"/healthz", "/livez", "/readyz"}


def url(rig: Rig, route: Route, version: str) -> str:
    filled = route.template.format(namespace="default", name="vm1", port="22", protocol="tcp")
    return f"{rig.url}{ROOT}/{version}{filled}"


def test_nobody_reaches_any_route(rig: Rig) -> None:
    for route, version in itertools.product(ROUTES, VERSIONS):
        for headers in ({}, FORGED, {"Authorization": "Bearer bad"}, {"Authorization": "Basic YWRtaW46YWRtaW4="}):
            status, body = call(rig, route.method, url(rig, route, version), headers=headers, body=b"{}")
            assert (status, body["reason"]) == (401, "Unauthorized"), (route, headers)
    assert not rig.node.commands
    assert not rig.client.patches
    assert not rig.client.access


def test_nobody_reaches_anything_else_that_is_served(rig: Rig, served: list[tuple[str, str]]) -> None:
    others = {(method, path) for method, path in served if "{" not in path}
    assert len(others) > 10
    for method, path in others:
        status, _ = call(rig, method, rig.url + path, body=b"{}" if method == "POST" else None)
        assert status == (200 if path in OPEN else 403 if method == "POST" else 401), path


def reviews(served: list[tuple[str, str]]) -> list[str]:
    found = [path for method, path in served if method == "POST"]
    assert len(found) > 20
    assert all(path.startswith(f"{REVIEWS}/") for path in found), "nothing else is written to"
    return found


def test_a_review_is_believed_from_the_api_server_alone(rig: Rig, served: list[tuple[str, str]]) -> None:
    ours, claim = rig.tls("front-proxy-client"), {"X-Remote-User": "system:apiserver"}
    json = {"Content-Type": "application/json"}
    for path in reviews(served):
        for tls, headers in (
            (None, json),
            (None, json | claim | FORGED),
            (None, json | claim),
            (None, json | claim | BEARER),
            (rig.tls("somebody-else"), json | claim),
            (ours, json | FORGED),
            (ours, json | BEARER),
        ):
            status, answer = call(rig, "POST", rig.url + path, headers=headers, body=b"{}", tls=tls)
            assert (status, answer["reason"]) == (403, "Forbidden"), (path, headers)
        assert call(rig, "POST", rig.url + path, headers=json | claim, body=b"{}", tls=ours)[0] == 400, path
        assert call(rig, "POST", rig.url + path.removeprefix(REVIEWS), headers=json, body=b"{}")[0] == 404
    assert not rig.client.access
    assert not rig.client.patches


def test_without_the_right_every_route_is_forbidden_and_nothing_is_looked_up(rig: Rig) -> None:
    rig.client.allowed = False
    for route, version in itertools.product(ROUTES, VERSIONS):
        rig.client.access.clear()
        # The object need not exist: who has no right learns not even that.
        address = url(rig, route, version).replace("/vm1/", "/no-such-vm/")
        status, body = call(rig, route.method, address, headers=BEARER, body=b"{}")
        assert (status, body["reason"]) == (403, "Forbidden"), route
        assert len(rig.client.access) == 1
    assert not rig.node.commands
    assert not rig.client.patches


def test_the_right_is_that_of_the_very_path(rig: Rig) -> None:
    rig.client.allowed = False
    asked = {}
    for route in ROUTES:
        call(rig, route.method, url(rig, route, "v1"), headers=BEARER, body=b"{}")
        wanted: Any = rig.client.access[-1].spec.resource_attributes
        namespace = "" if route.clusterwide else "default"
        assert (wanted.group, wanted.version, wanted.namespace) == ("subresources.kubevirt.io", "v1", namespace)
        assert wanted.verb == {"GET": "get", "PUT": "update"}[route.method]
        assert wanted.name == ("" if route.nameless or route.clusterwide else "vm1")
        asked[route.template] = f"{wanted.resource}/{wanted.subresource}".rstrip("/")
    prefix = "/namespaces/{namespace}/virtualmachineinstances/{name}/"
    assert asked[prefix + "vnc/screenshot"] == "virtualmachineinstances/vnc/screenshot"
    assert asked[prefix + "portforward/{port}/{protocol}"] == "virtualmachineinstances/portforward"
    assert asked[prefix + "evacuate/cancel"] == "virtualmachineinstances/evacuate/cancel"
    assert asked[prefix + "sev/fetchcertchain"] == "virtualmachineinstances/sev/fetchcertchain"
    assert asked["/namespaces/{namespace}/expand-vm-spec"] == "expand-vm-spec"
    assert asked["/dump-cluster-profiler"] == "dump-cluster-profiler"


def test_other_methods_are_not_served(rig: Rig) -> None:
    for route in ROUTES:
        for method in {"GET", "PUT", "POST", "DELETE", "PATCH"} - {route.method}:
            status, _ = call(rig, method, url(rig, route, "v1"), headers=BEARER, body=b"{}")
            assert status == 405, (method, route)
    assert not rig.client.access


@pytest.mark.parametrize("name", ["..%2Fvm1", "%2E%2E", "vm1%2F..%2Fother", "VM1", "a%00b", "vm1%3Fx", "-a", "a" * 300])
def test_a_name_that_no_object_can_have_leads_nowhere(rig: Rig, name: str) -> None:
    status, _ = call(rig, "PUT", rig.sub("pause", name), headers=BEARER)
    assert status == 404
    assert not rig.node.commands


@pytest.fixture
def served(rig: Rig) -> list[tuple[str, str]]:
    """What the application of this rig serves, whatever it is."""
    return [
        (route.method, resource.canonical)
        for resource in rig.apps[0].router.resources()
        for route in resource
        if route.method in ("GET", "PUT", "POST")
    ]
