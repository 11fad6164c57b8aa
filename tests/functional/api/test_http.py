"""Identity, access, discovery, webhooks and commands over real TLS."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

import aiohttp
import pytest
from functional.api.rig import TOKEN, Rig, make_node, make_vmi, serve_node

from virt_api.subresources.discovery import REVIEWS
from virt_core.apis import names
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.nodes import Node
from virt_core.apis.podparts import TCPSocketAction
from virt_core.apis.vmi import Probe

BEARER = {"Authorization": f"Bearer {TOKEN}"}


def call(
    rig: Rig,
    method: str,
    url: str,
    *,
    headers: dict[str, str] | None = None,
    body: bytes | None = None,
    tls: ssl.SSLContext | None = None,
) -> tuple[int, Any]:
    """One request: status and body, decoded if it is JSON."""

    async def run() -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers, data=body, ssl=tls or rig.tls()) as response,
        ):
            text = await response.read()
            is_json = response.content_type == "application/json" and text
            return response.status, json.loads(text) if is_json else text.decode(errors="replace")

    return asyncio.run(asyncio.wait_for(run(), 20))


def test_health_needs_no_identity(rig: Rig) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert call(rig, "GET", rig.url + path)[0] == 200, path
    assert call(rig, "GET", f"{rig.url}/healthz")[1]["config-resource-version"] == "0"


def test_discovery_needs_an_identity_and_no_right(rig: Rig) -> None:
    rig.client.allowed = False
    for path in ("/metrics", "/openapi/v2", "/openapi/v3"):
        assert call(rig, "GET", rig.url + path)[0] == 401, path
        assert call(rig, "GET", rig.url + path, headers=BEARER)[0] == 200, path
    paths = call(rig, "GET", f"{rig.url}/openapi/v2", headers=BEARER)[1]["paths"]
    console = paths["/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances/{name}/console"]
    assert [parameter["name"] for parameter in console["get"]["parameters"]] == ["namespace", "name"]
    named = [operation["operationId"] for methods in paths.values() for operation in methods.values()]
    assert len(named) == len(set(named)), "the aggregator refuses a document with an operation twice"
    _, groups = call(rig, "GET", f"{rig.url}/apis", headers=BEARER)
    assert [group["name"] for group in groups["groups"]] == ["subresources.kubevirt.io"]
    for version in ("v1", "v1alpha3"):
        root = f"{rig.url}/apis/subresources.kubevirt.io/{version}"
        _, resources = call(rig, "GET", root, headers=BEARER)
        assert resources["groupVersion"] == f"subresources.kubevirt.io/{version}"
        names = [resource["name"] for resource in resources["resources"]]
        assert {"virtualmachineinstances/console", "virtualmachines/start", "expand-vm-spec", "version"} <= set(names)
        assert len(names) == len(set(names))
        assert call(rig, "GET", f"{root}/version", headers=BEARER)[1]["gitVersion"].startswith("v")
        assert call(rig, "GET", f"{root}/healthz", headers=BEARER)[1]["apiserver"]["connectivity"] == "ok"
        assert call(rig, "GET", f"{root}/guestfs", headers=BEARER)[1]["gsImage"] == ""


def test_nobody_is_refused_and_headers_alone_mean_nothing(rig: Rig) -> None:
    assert call(rig, "PUT", rig.sub("pause"))[0] == 401
    forged = {"X-Remote-User": "system:admin", "X-Remote-Group": "system:masters"}
    assert call(rig, "PUT", rig.sub("pause"), headers=forged)[0] == 401
    wrong_name = rig.tls("somebody")
    assert call(rig, "PUT", rig.sub("pause"), headers=forged, tls=wrong_name)[0] == 401
    assert call(rig, "PUT", rig.sub("pause"), headers={"Authorization": "Bearer bad"})[0] == 401
    assert rig.node.commands == []


def test_a_certificate_of_another_ca_does_not_even_connect(rig: Rig) -> None:
    stranger = rig.tls("front-proxy-client", ca=rig.ca)
    with pytest.raises(aiohttp.ClientError):
        call(rig, "PUT", rig.sub("pause"), headers={"X-Remote-User": "x"}, tls=stranger)


def test_the_front_proxy_speaks_for_a_user(rig: Rig) -> None:
    headers = {"X-Remote-User": "alice", "X-Remote-Group": "ops", "X-Remote-Extra-Scopes": "all"}
    status, _ = call(rig, "PUT", rig.sub("pause"), headers=headers, tls=rig.tls("front-proxy-client"))
    assert status == 200
    asked = rig.client.access[0].spec
    assert (asked.user, asked.groups, asked.extra) == ("alice", ["ops"], {"scopes": ["all"]})
    assert rig.client.tokens == []


def test_access_is_asked_for_exactly_the_subresource(rig: Rig) -> None:
    call(rig, "PUT", rig.sub("pause"), headers=BEARER)
    wanted = rig.client.access[0].spec.resource_attributes
    assert wanted is not None
    assert (wanted.verb, wanted.group, wanted.version) == ("update", "subresources.kubevirt.io", "v1")
    assert (wanted.namespace, wanted.resource, wanted.subresource, wanted.name) == (
        "default", "virtualmachineinstances", "pause", "vm1",
    )  # fmt: skip


def test_what_is_not_allowed_is_refused_before_anything_is_looked_up(rig: Rig) -> None:
    rig.client.allowed = False
    status, body = call(rig, "PUT", rig.sub("pause", "absent"), headers=BEARER)
    assert (status, body["kind"], body["reason"]) == (403, "Status", "Forbidden")
    assert rig.node.commands == []


def test_a_token_is_known_for_a_short_while(rig: Rig) -> None:
    for _ in range(3):
        call(rig, "PUT", rig.sub("pause"), headers=BEARER)
    assert len(rig.client.tokens) == 1
    rig.clock.step(11)
    call(rig, "PUT", rig.sub("pause"), headers=BEARER)
    assert len(rig.client.tokens) == 2


def test_pause_and_unpause_reach_the_node_with_the_uid(rig: Rig) -> None:
    assert call(rig, "PUT", rig.sub("pause"), headers=BEARER) == (200, "")
    rig.client.vmis["vm1"] = make_vmi(conditions=("Paused",))
    assert call(rig, "PUT", rig.sub("unpause"), headers=BEARER)[0] == 200
    assert rig.node.commands == [("pause", "uid-vm1"), ("unpause", "uid-vm1")]


def test_a_dry_run_changes_nothing(rig: Rig) -> None:
    assert call(rig, "PUT", rig.sub("pause"), headers=BEARER, body=b'{"dryRun":["All"]}')[0] == 200
    assert rig.node.commands == []
    assert call(rig, "PUT", rig.sub("pause"), headers=BEARER, body=b"nonsense")[0] == 400


def test_preconditions(rig: Rig) -> None:
    probed = make_vmi()
    probed.spec.liveness_probe = Probe(tcp_socket=TCPSocketAction(port=1))
    rig.client.vmis |= {
        "scheduled": make_vmi(phase="Scheduled"),
        "paused": make_vmi(conditions=("Paused",)),
        "probed": probed,
    }
    expected = [
        ("pause", "scheduled", 409), ("pause", "paused", 409), ("pause", "probed", 403), ("pause", "absent", 404),
        ("unpause", "vm1", 409), ("unpause", "absent", 404),
    ]  # fmt: skip
    for name, vmi, code in expected:
        status, body = call(rig, "PUT", rig.sub(name, vmi), headers=BEARER)
        assert (status, body["code"]) == (code, code), (name, vmi, body)
    assert call(rig, "GET", rig.sub("guestosinfo"), headers=BEARER)[0] == 409
    assert call(rig, "GET", rig.sub("nosuch"), headers=BEARER)[0] == 404
    assert rig.node.commands == []


def test_guest_info_is_translated(rig: Rig) -> None:
    rig.client.vmis["vm1"] = make_vmi(conditions=("AgentConnected",))
    status, body = call(rig, "GET", rig.sub("guestosinfo"), headers=BEARER)
    assert status == 200
    assert (body["kind"], body["guestAgentVersion"], body["os"]) == (
        "VirtualMachineInstanceGuestAgentInfo", "7.2", {"name": "Debian", "versionId": "12"},
    )  # fmt: skip


def test_guest_info_carries_users_and_filesystems_if_the_agent_tells_them(rig: Rig) -> None:
    rig.client.vmis["vm1"] = make_vmi(conditions=("AgentConnected",))
    _, body = call(rig, "GET", rig.sub("guestosinfo"), headers=BEARER)
    assert body["userList"] == [{"userName": "root", "loginTime": 1.5}]
    assert body["fsInfo"]["disks"][0]["diskName"] == "vda1"
    rig.node.mute = True
    status, body = call(rig, "GET", rig.sub("guestosinfo"), headers=BEARER)
    assert (status, "userList" in body, "fsInfo" in body) == (200, False, False)


def test_an_unreachable_node_is_named(rig: Rig) -> None:
    address = {"virtpod.io/handler-address": "127.0.0.1:1"}
    rig.client.nodes["node1"] = Node(metadata=ObjectMeta(name="node1", annotations=address))
    status, body = call(rig, "PUT", rig.sub("pause"), headers=BEARER)
    assert status == 503
    assert "node1" in body["message"]
    rig.client.nodes["node1"] = Node(metadata=ObjectMeta(name="node1"))
    assert call(rig, "PUT", rig.sub("pause"), headers=BEARER)[0] == 400


def test_a_node_that_is_back_answers_at_once(rig: Rig) -> None:
    """While it was away the channel got slower and slower to look for it."""
    own = serve_node(rig.node, rig.handler_tls)
    address = {"virtpod.io/handler-address": f"127.0.0.1:{own.port}"}
    rig.client.nodes["node1"] = Node(metadata=ObjectMeta(name="node1", annotations=address))
    assert call(rig, "PUT", rig.sub("pause"), headers=BEARER)[0] == 200
    own.stop(0)
    for _ in range(2):
        assert call(rig, "PUT", rig.sub("pause"), headers=BEARER)[0] == 503
    again = serve_node(rig.node, rig.handler_tls, own.port)
    try:
        assert call(rig, "PUT", rig.sub("pause"), headers=BEARER)[0] == 200
    finally:
        again.stop(0)


@pytest.mark.parametrize(
    "shown",
    [
        (names.TLS_NAME_API,),
        (names.tls_name_node("node2"),),
        ("virt-handler.virtpod.internal",),
        ("virt-api.virtpod.svc",),
        (names.tls_name_node("node1", "elsewhere"),),
    ],
    ids=["virt-api", "another node", "shared by all nodes", "serving", "another installation"],
)
def test_a_server_that_is_not_the_node_is_not_believed(rig: Rig, shown: tuple[str, ...]) -> None:
    """Whoever gets the traffic to a node's address (ARP, a reused Pod address) is not yet that node."""
    impostor = serve_node(rig.node, rig.ca.issue("x", *shown).write(rig.directory / "impostor"))
    try:
        rig.client.nodes["node1"] = make_node("node1", impostor.port)
        assert call(rig, "PUT", rig.sub("pause"), headers=BEARER)[0] == 503
        assert rig.node.commands == []
    finally:
        impostor.stop(0.2)


def test_an_open_connection_to_one_node_serves_no_other(rig: Rig) -> None:
    """node2 has, or claims, the address of node1: the connection that is there was checked for node1 only."""
    assert call(rig, "PUT", rig.sub("pause"), headers=BEARER)[0] == 200
    address = rig.client.nodes["node1"].metadata.annotations[names.ANNOTATION_HANDLER_ADDRESS]
    rig.client.nodes["node2"] = make_node("node2", int(address.rpartition(":")[2]))
    moved = make_vmi("vm2")
    moved.status.node_name = "node2"
    rig.client.vmis["vm2"] = moved
    before = list(rig.node.commands)
    assert call(rig, "PUT", rig.sub("pause", "vm2"), headers=BEARER)[0] == 503
    assert rig.node.commands == before


def test_webhooks_answer_reviews_and_nothing_else(rig: Rig) -> None:
    obj = {"spec": {"domain": {"devices": {}, "memory": {"guest": "1Gi"}}}}
    request = {"uid": "r", "operation": "CREATE", "object": obj}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body = json.dumps(review).encode()
    url, tls = f"{rig.url}{REVIEWS}/virtualmachineinstances-mutate", rig.tls("front-proxy-client")
    api_server = {"X-Remote-User": "system:apiserver"}
    as_json, as_text = ({**api_server, "Content-Type": kind} for kind in ("application/json", "text/plain"))
    status, answer = call(rig, "POST", url, headers=as_json, body=body, tls=tls)
    assert (status, answer["kind"], answer["response"]["allowed"]) == (200, "AdmissionReview", True)
    assert answer["response"]["patchType"] == "JSONPatch"
    assert call(rig, "POST", url, headers=as_text, body=body, tls=tls)[0] == 400
    assert call(rig, "POST", url, headers=as_json, body=b"{}", tls=tls)[0] == 400


def test_a_stop_asks_callers_to_leave_before_it_closes(rig: Rig) -> None:
    """An API server that is busy on a connection would not know whether its last request was heard."""

    async def run() -> None:
        tls = rig.tls()
        async with aiohttp.ClientSession() as session:
            said = None
            while said != "close":
                async with session.get(f"{rig.url}/healthz", ssl=tls) as response:
                    assert response.status == 200
                    said = response.headers.get("Connection")
                rig.stop.set()

    asyncio.run(asyncio.wait_for(run(), 20))
