"""The servers that an API server calls during the contract: an admission webhook and an aggregated API.

They listen on an address that the server under test reaches, in a thread with an event loop of its own. What they do is
told by the path or the query of each request, so that all cases share them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web
from framework.certs import CertAuthority

Object = dict[str, Any]

AGGREGATED = "aggregated.contract.virtpod.test"
SERVICE, NAMESPACE = "aggregated", "contract-backends"
_START_S = 10.0


class Backends:
    """`reviews` keeps what the webhook was asked since the last `take_reviews`."""

    def __init__(self, host: str, directory: Path) -> None:
        self.host = host
        self.port = 0
        self._authority = CertAuthority("contract-ca")
        self.bundle = base64.b64encode(self._authority.pem).decode()
        leaf = self._authority.issue("contract", host, f"{SERVICE}.{NAMESPACE}.svc")
        self._directory = leaf.write(directory)
        self._reviews: list[Object] = []
        self._askers: list[Object] = []
        self._started = threading.Event()

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}"

    def client_config(self, behaviour: str) -> Object:
        return {"url": f"{self.url}/webhook/{behaviour}", "caBundle": self.bundle}

    def own_config(self, behaviour: str) -> Object:
        """The same webhook behind the aggregated API, which the API server asks by way of itself."""
        path = f"/apis/{AGGREGATED}/v1/reviews/{behaviour}"
        return {"service": {"namespace": "default", "name": "kubernetes", "port": 443, "path": path}}

    def take_askers(self) -> list[Object]:
        """As whom the API server asked since the last time, where it says so."""
        taken, self._askers = self._askers, []
        return taken

    def take_reviews(self) -> list[Object]:
        taken, self._reviews = self._reviews, []
        return taken

    # The server.

    @contextmanager
    def running(self) -> Iterator[None]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._run, args=(loop,), name="contract-backends")
        thread.start()
        assert self._started.wait(_START_S), "the contract's own servers did not start"
        try:
            yield
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_START_S)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        runner = web.AppRunner(self._app(), shutdown_timeout=0.5)
        loop.run_until_complete(self._listen(runner))
        self._started.set()
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(self._end(runner))
            loop.close()

    async def _end(self, runner: web.AppRunner) -> None:
        await runner.cleanup()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _listen(self, runner: web.AppRunner) -> None:
        await runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._directory / "tls.crt", self._directory / "tls.key")
        await web.TCPSite(runner, self.host, 0, ssl_context=context).start()
        self.port = int(runner.addresses[0][1])

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=8 << 20)
        app.router.add_post("/webhook/{behaviour}", self._webhook)
        base = f"/apis/{AGGREGATED}/v1"
        app.router.add_get(base, _resources)
        app.router.add_post(f"{base}/reviews/{{behaviour}}", self._aggregated_webhook)
        app.router.add_route("*", f"{base}/namespaces/{{namespace}}/echoes/{{name}}", _echo)
        app.router.add_get(f"{base}/namespaces/{{namespace}}/echoes/{{name}}/console", _console)
        return app

    # The webhook.

    async def _webhook(self, request: web.Request) -> web.Response:
        review = await request.json()
        self._reviews.append(review["request"])
        return await _answer(request.match_info["behaviour"], review)

    async def _aggregated_webhook(self, request: web.Request) -> web.Response:
        said = {name: request.headers.getall(name, []) for name in ("X-Remote-User", "X-Remote-Group", "Authorization")}
        self._askers.append(said | {"query": dict(request.query)})
        return await self._webhook(request)


async def _answer(behaviour: str, review: Object) -> web.Response:
    if behaviour == "slow":
        await asyncio.sleep(5)
    if behaviour == "broken":
        return web.Response(status=500, text="it is broken")
    if behaviour == "nonsense":
        return web.Response(text="no review", content_type="text/plain")
    response = {"uid": review["request"]["uid"], **RESPONSES.get(behaviour, {"allowed": True})}
    if behaviour == "stranger":
        response["uid"] = "another"
    return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def _patched(*operations: Object) -> Object:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


_CAUSES = [{"reason": "FieldValueInvalid", "message": "too big", "field": "spec.size"}]
RESPONSES: dict[str, Object] = {
    "deny": {"allowed": False},
    "deny-message": {"allowed": False, "status": {"message": "not today"}},
    "deny-reason": {"allowed": False, "status": {"reason": "NotToday"}},
    "deny-code": {"allowed": False, "status": {"message": "not today", "code": 422, "reason": "Invalid"}},
    "deny-low-code": {"allowed": False, "status": {"message": "fine?", "code": 200}},
    "deny-causes": {
        "allowed": False,
        "status": {"message": "not today", "code": 422, "reason": "Invalid", "details": {"causes": _CAUSES}},
    },
    "deny-full": {
        "allowed": False,
        "status": {"message": "gone", "code": 404, "reason": "NotFound", "details": {"name": "n", "kind": "k"}},
    },
    "warn": {"allowed": True, "warnings": ["be careful", 'a "quoted" one']},
    "label": _patched({"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}}),
    "grow": _patched({"op": "replace", "path": "/spec/size", "value": 7}),
    "spoil": _patched({"op": "replace", "path": "/spec/size", "value": -1}),
    "unknown-field": _patched({"op": "add", "path": "/spec/nowhere", "value": 1}),
    "bad-patch": _patched({"op": "remove", "path": "/spec/missing"}),
    "rename": _patched({"op": "replace", "path": "/metadata/name", "value": "other"}),
    "patch-no-type": {"allowed": True, "patch": "W10="},
}


# The aggregated API.


async def _resources(_request: web.Request) -> web.Response:
    verbs = ["create", "delete", "get", "patch", "update"]
    echoes = {"name": "echoes", "singularName": "echo", "namespaced": True, "kind": "Echo", "verbs": verbs}
    console = {"name": "echoes/console", "singularName": "", "namespaced": True, "kind": "Echo", "verbs": ["get"]}
    body = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{AGGREGATED}/v1"}
    return web.json_response(body | {"resources": [echoes, console]})


async def _echo(request: web.Request) -> web.Response:
    """Answers with what arrived, so that the transcript shows what an API server passes on."""
    told = {key.lower(): request.headers.getall(key) for key in request.headers}
    kept = {k: v for k, v in sorted(told.items()) if k.startswith(("x-remote", "impersonate")) or k in _SHOWN}
    body = {
        "kind": "Echo",
        "apiVersion": f"{AGGREGATED}/v1",
        "method": request.method,
        "query": dict(request.query),
        "headers": kept,
        "sent": (await request.read()).decode(),
    }
    status = int(request.query.get("status", "200"))
    return web.json_response(body, status=status, headers={"X-Echo": "yes", "Warning": '299 - "from behind"'})


_SHOWN = ("authorization", "content-type", "accept", "user-agent", "cookie", "x-own")


async def _console(request: web.Request) -> web.StreamResponse:
    if request.query.get("refuse"):
        return web.json_response({"kind": "Status", "message": "no such guest"}, status=404)
    ws = web.WebSocketResponse(protocols=["plain.contract"])
    await ws.prepare(request)
    async for message in ws:
        if message.data == "close":
            await ws.close(code=4001, message=b"done")
        elif message.type is WSMsgType.BINARY:
            await ws.send_bytes(message.data[::-1])
        else:
            await ws.send_str(f"{ws.ws_protocol}:{message.data}")
    return ws
