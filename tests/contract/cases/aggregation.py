"""An API that another server answers: plain requests, websockets, refusals, discovery."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
from contract.backends import AGGREGATED, NAMESPACE, SERVICE
from contract.table import case
from contract.talk import Talk

ECHOES = f"/apis/{AGGREGATED}/v1/namespaces/{{ns}}/echoes"
_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


@case()
def plain_requests(t: Talk) -> None:
    t.get(f"{ECHOES}/a?x=1&y=a%2Fb", headers={"X-Own": "kept"})
    t.create(f"{ECHOES}/a", {"some": "body"})
    t.patch(f"{ECHOES}/a", {"some": "patch"})
    t.delete(f"{ECHOES}/a")


@case()
def who_asks(t: Talk) -> None:
    forged = {"X-Remote-User": "somebody", "X-Remote-Group": "evil", "X-Remote-Extra-Scopes": "all"}
    t.get(f"{ECHOES}/a", headers=forged, pick=lambda body: body["headers"].get("x-remote-group"))
    acting = {"Impersonate-User": "other", "Impersonate-Group": "system:masters", "Impersonate-Extra-Scope": "one"}
    t.get(f"{ECHOES}/a", headers=acting)


@case()
def answers_pass_through(t: Talk) -> None:
    t.get(f"{ECHOES}/a?status=404")
    t.get(f"{ECHOES}/a?status=503")
    t.get(f"/apis/{AGGREGATED}/v1")
    t.get(f"/apis/{AGGREGATED}/v1/nowhere", pick=lambda body: body)


@case()
def without_rights(t: Talk) -> None:
    t.get(f"{ECHOES}/a", user="nobody-special")
    t.get(f"{ECHOES}/a/console", user="nobody-special")
    t.create(f"{ECHOES}/a", {}, user="nobody-special")
    t.get(f"{ECHOES}/a", anonymous=True, headers={"Authorization": "Bearer nonsense"})


_CONSOLE = f"{ECHOES}/a/console"
_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@case()
def websockets(t: Talk) -> None:
    url = t.engine.url + _CONSOLE.replace("{ns}", t.ns)

    async def run() -> None:
        connector = aiohttp.TCPConnector(ssl=t.engine.context())
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.ws_connect(url, protocols=("plain.contract",)) as socket,
        ):
            await asyncio.wait_for(_converse(t, socket), 10)

    asyncio.run(run())


async def _converse(t: Talk, socket: aiohttp.ClientWebSocketResponse) -> None:
    t.note("the agreed protocol", socket.protocol)
    await socket.send_str("hello")
    t.note("an answer", await socket.receive_str())
    large = bytes(range(256)) * 4096
    await socket.send_bytes(large)
    received = b""
    while len(received) < len(large):
        received += await socket.receive_bytes()
    t.note("a large answer is whole", received == large[::-1])
    await socket.send_str("close")
    end = await socket.receive()
    t.note("the end", [int(end.type), end.data, end.extra])


@case()
def refused_websockets(t: Talk) -> None:
    for query, headers in (("?refuse=1", {}), ("", {"Impersonate-User": "nobody-special"})):
        refused = t.send("GET", _CONSOLE + query, headers=_UPGRADE | headers)
        t.engine.close()  # A connection that asked for an upgrade is not used again.
        t.note("refused", [refused.status, bool(refused.body)])


@case()
def discovered(t: Talk) -> None:
    t.get(f"/apis/{AGGREGATED}")
    t.get("/apis", pick=lambda body: [g for g in body["groups"] if g["name"] == AGGREGATED])
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

    def ours(body: Any) -> Any:
        return [item for item in body["items"] if item["metadata"]["name"] == AGGREGATED]

    t.get("/apis", accept=accept, pick=ours)
    t.get(f"{_SERVICES}/v1.{AGGREGATED}", pick=lambda body: [body["spec"], body["status"]])
    t.get(f"{_SERVICES}/v1.{AGGREGATED}", accept="application/json;as=Table;v=v1;g=meta.k8s.io")


@case()
def nobody_there(t: Talk) -> None:
    """A registered group whose Service does not exist."""
    group = "absent.contract.virtpod.test"
    name = f"v1.{group}"
    t.send("DELETE", f"{_SERVICES}/{name}")
    t.undo(f"{_SERVICES}/{name}")
    service = {"name": "absent", "namespace": NAMESPACE}
    spec = {"group": group, "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10, "service": service}
    t.create(_SERVICES, {"metadata": {"name": name}, "spec": spec | {"insecureSkipTLSVerify": True}})
    t.until(f"{_SERVICES}/{name}", lambda reply: "False" in str(reply.body.get("status")))
    t.get(f"/apis/{group}/v1/things")
    t.get(f"/apis/{group}/v1")


@case(words=False)
def bad_registrations(t: Talk) -> None:
    service = {"name": SERVICE, "namespace": NAMESPACE}
    base = {"group": "b.contract.virtpod.test", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10}
    named = {"metadata": {"name": "v1.b.contract.virtpod.test"}}
    t.create(_SERVICES, {"metadata": {"name": "wrong"}, "spec": base | {"service": service}})
    t.create(_SERVICES, named | {"spec": base | {"service": service, "groupPriorityMinimum": 0}})
    t.create(_SERVICES, named | {"spec": base | {"service": service, "versionPriority": 0}})
    t.create(_SERVICES, named | {"spec": base | {"service": {"name": "x"}}})
    both = {"caBundle": t.backends.bundle, "insecureSkipTLSVerify": True}
    t.create(_SERVICES, named | {"spec": base | {"service": service} | both})
