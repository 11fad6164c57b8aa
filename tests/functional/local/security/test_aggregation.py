"""An aggregated API over real TLS: identity, streaming, websockets byte for byte, absence."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from .serving import Api, api_server, service, within

GROUP = "sub.example.org"
RESOURCES = {
    "kind": "APIResourceList",
    "groupVersion": f"{GROUP}/v1",
    "resources": [{"name": "things/console", "namespaced": True, "kind": "Thing", "verbs": ["get"]}],
}


def backend() -> web.Application:
    app = web.Application()

    async def resources(_: web.Request) -> web.Response:
        return web.json_response(RESOURCES)

    async def whoami(request: web.Request) -> web.Response:
        tls = request.transport.get_extra_info("ssl_object") if request.transport else None
        peer = dict(part[0] for part in tls.getpeercert()["subject"]) if tls and tls.getpeercert() else {}
        said = {key: request.headers.getall(key) for key in request.headers if key.lower().startswith("x-remote")}
        return web.json_response({"peer": peer, "said": said, "auth": request.headers.get("Authorization")})

    async def console(request: web.Request) -> web.StreamResponse:
        if request.query.get("refuse"):
            return web.json_response({"message": "no such guest"}, status=404)
        ws = web.WebSocketResponse(protocols=["plain.example"])
        await ws.prepare(request)
        async for message in ws:
            if message.data == "close":
                await ws.close(code=4001, message=b"done")
            elif message.type is WSMsgType.BINARY:
                await ws.send_bytes(message.data[::-1])
            else:
                await ws.send_str(f"{ws.ws_protocol}:{message.data}")
        return ws

    async def swagger(_: web.Request) -> web.Response:
        paths = {f"/apis/{GROUP}/v1/things": {"get": {}}, "/api/v1/pods": {"get": {}}}
        return web.json_response({"swagger": "2.0", "paths": paths})

    base = f"/apis/{GROUP}/v1"
    app.router.add_get(base, resources)
    app.router.add_get("/openapi/v2", swagger)
    app.router.add_get(f"{base}/namespaces/default/things/a/whoami", whoami)
    app.router.add_get(f"{base}/namespaces/default/things/a/console", console)
    return app


async def register(api: Api, bundle: str, reference: dict[str, str]) -> None:
    spec = {
        "group": GROUP,
        "version": "v1",
        "groupPriorityMinimum": 10,
        "versionPriority": 10,
        "caBundle": bundle,
        "service": {**reference, "port": 443},
    }
    name = f"v1.{GROUP}"
    await api.create("/apis/apiregistration.k8s.io/v1/apiservices", {"metadata": {"name": name}, "spec": spec})


async def available(api: Api, status: str) -> Any:
    _, answer, _ = await api.call("GET", f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{GROUP}")
    conditions = answer.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Available" and each["status"] == status), None)


def test_the_other_server_learns_who_asks_from_us_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with api_server(tmp_path) as api, service(api, "agg", backend()) as (bundle, reference):
            await register(api, bundle, reference)
            await within(5, lambda: available(api, "True"))
            forged = {"X-Remote-User": "somebody", "X-Remote-Group": "evil", "Authorization": "Bearer x"}
            path = f"/apis/{GROUP}/v1/namespaces/default/things/a/whoami"
            status, answer, _ = await api.call("GET", path, headers=forged)
            assert status == 200
            assert answer["peer"] == {"commonName": "front-proxy-client"}
            assert answer["said"]["X-Remote-User"] == ["kubernetes-admin"]
            assert answer["said"]["X-Remote-Group"] == ["system:masters", "system:authenticated"]
            assert answer["auth"] is None
            status, answer, _ = await api.call("GET", path, user="controllers")
            assert answer["said"]["X-Remote-User"] == ["system:kube-controller-manager"]
            status, refused, _ = await api.call("GET", path, user="")
            assert (status, refused["reason"]) == (403, "Forbidden")

    asyncio.run(scenario())


def test_a_websocket_passes_through_byte_for_byte(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with api_server(tmp_path) as api, service(api, "agg", backend()) as (bundle, reference):
            await register(api, bundle, reference)
            url = f"{api.base}/apis/{GROUP}/v1/namespaces/default/things/a/console"
            async with api.session.ws_connect(url, ssl=api.context(), protocols=["plain.example"]) as ws:
                assert ws.protocol == "plain.example"
                await ws.send_str("hello")
                assert await ws.receive_str(timeout=5) == "plain.example:hello"
                large = bytes(range(256)) * 4096
                for _ in range(3):
                    await ws.send_bytes(large)
                    assert await ws.receive_bytes(timeout=10) == large[::-1]
                await ws.send_str("close")
                message = await ws.receive(timeout=5)
                assert (message.type, message.data, message.extra) == (WSMsgType.CLOSE, 4001, "done")
            status, answer, _ = await api.call("GET", "/api/v1/namespaces/default")
            assert status == 200, answer

    asyncio.run(scenario())


def test_a_refused_upgrade_reaches_the_client(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with api_server(tmp_path) as api, service(api, "agg", backend()) as (bundle, reference):
            await register(api, bundle, reference)
            url = f"{api.base}/apis/{GROUP}/v1/namespaces/default/things/a/console?refuse=1"
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await api.session.ws_connect(url, ssl=api.context())
            assert refused.value.status == 404

    asyncio.run(scenario())


def test_discovery_merges_and_an_absent_server_is_503(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with api_server(tmp_path) as api:
            async with service(api, "agg", backend()) as (bundle, reference):
                await register(api, bundle, reference)
                await within(5, lambda: available(api, "True"))
                _, groups, _ = await api.call("GET", "/apis")
                assert GROUP in [group["name"] for group in groups["groups"]]
                _, listed, _ = await api.call("GET", f"/apis/{GROUP}/v1")
                assert listed["resources"][0]["name"] == "things/console"
                _, swagger, _ = await api.call("GET", "/openapi/v2")
                assert list(swagger["paths"]) == [f"/apis/{GROUP}/v1/things"], "not those of others' groups"
            await api.call("DELETE", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/agg")
            gone = await within(5, lambda: available(api, "False"))
            assert gone["reason"] == "MissingEndpoints"
            url = f"{api.base}/apis/{GROUP}/v1/namespaces/default/things/a/whoami"
            async with api.session.get(url, ssl=api.context()) as answer:
                assert (answer.status, await answer.text()) == (503, "service unavailable\n")

    asyncio.run(scenario())
