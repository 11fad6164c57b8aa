"""The real automation server with real TLS, in front of a fake API server that writes down who asked what."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from framework.certs import CertAuthority
from functional.api.rig import SERVING_NAME, TOKEN, FakeClient, FakeNode, make_node, make_vmi, serve_node

from virt_api.authn import Authenticator
from virt_api.authorizer import Authorizer
from virt_api.automation.server import AutomationServer, beside
from virt_api.automation.service import Parts
from virt_api.automation.userapi import UserApi
from virt_api.frontproxy import FrontProxy
from virt_api.kube import Kube
from virt_api.nodes import Nodes
from virt_client import Client
from virt_core.apis import names
from virt_core.kube.connect import Connection
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.clock import FakeClock

COLLECTION = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"


def document(name: str = "vm1", *, phase: str = "Running", version: str = "5", **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": version},
        "status": {"phase": phase, **status},
    }


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    token: str
    content_type: str
    body: Any
    client_certificate: Any


@dataclass
class FakeApi:
    """Answers what a test lays out for a method and path; a watch gives its lines and then stays open."""

    answers: dict[tuple[str, str], tuple[int, Any]] = field(default_factory=dict)
    events: list[list[dict[str, Any]]] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(
            Asked(
                request.method,
                request.path,
                dict(request.query),
                request.headers.get("Authorization", ""),
                request.headers.get("Content-Type", ""),
                json.loads(body) if body else None,
                request.get_extra_info("peercert"),
            )
        )
        if request.query.get("watch") == "true":
            return await self._watch(request)
        missing = (404, {"kind": "Status", "code": 404, "reason": "NotFound", "message": f"{request.path} not found"})
        status, answer = self.answers.get((request.method, request.path), missing)
        return web.json_response(answer, status=status)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        lines = self.events.pop(0) if self.events else None
        for line in lines or []:
            await response.write(json.dumps(line).encode() + b"\n")
        while not self.events and lines is None:
            await asyncio.sleep(0.02)
        return response


@dataclass
class AutomationRig:
    api: FakeApi
    kube: FakeClient
    node: FakeNode
    port: int
    ca: CertAuthority
    serving: Path
    fail: Callable[..., None]

    def client(self, token: str = TOKEN, **options: Any) -> Client:
        return Client(f"127.0.0.1:{self.port}", token, ca_pem=self.ca.pem, **options)

    def answer(self, method: str, path: str, answer: Any, status: int = 200) -> None:
        self.api.answers[(method, path)] = (status, answer)


@contextmanager
def running(directory: Path) -> Iterator[AutomationRig]:
    ca, own_ca = CertAuthority("virtpod"), CertAuthority("cluster")
    handler_tls = ca.issue("virt-handler", names.tls_name_node("node1")).write(directory / "handler")
    serving = ca.issue("virt-api", SERVING_NAME, "localhost", "127.0.0.1").write(directory / "serving")
    mine = ca.issue("virt-api", names.TLS_NAME_API).write(directory / "api")
    api, kube, node = FakeApi(), FakeClient(), FakeNode()
    node_server = serve_node(node, handler_tls)
    kube.nodes["node1"] = make_node("node1", node_server.port)
    kube.vmis["vm1"] = make_vmi()

    started, stop = threading.Event(), threading.Event()
    found: dict[str, Any] = {}

    def body() -> None:
        asyncio.run(_serve(directory, own_ca, api, kube, TlsFiles(mine), serving, found, started, stop))

    thread = threading.Thread(target=body, name="automation")
    thread.start()
    try:
        assert started.wait(10)

        def fail(method: str, path: str, code: int, reason: str, message: str, **details: Any) -> None:
            answer = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
            api.answers[(method, path)] = (code, {**answer, "details": details})

        yield AutomationRig(api, kube, node, found["port"], ca, serving, fail)
    finally:
        stop.set()
        thread.join(15)
        node_server.stop(0.5)
    assert not thread.is_alive()


async def _serve(
    directory: Path,
    cluster: CertAuthority,
    api: FakeApi,
    kube_client: FakeClient,
    tls: TlsFiles,
    serving: Path,
    found: dict[str, Any],
    started: threading.Event,
    stop: threading.Event,
) -> None:
    port, close_api = await _serve_api(directory, cluster, api)
    kube = Kube(kube_client)
    nodes = Nodes(kube, tls, 1)
    authenticator = Authenticator(kube, FakeClock(), FrontProxy)
    # A certificate of virt-api's own, which must never reach the API server from here.
    own = cluster.issue("virt-api", "virt-api")
    connection = Connection(f"https://127.0.0.1:{port}", cluster.pem, own.cert, own.key)
    parts = Parts(UserApi(connection), kube, nodes, authenticator, Authorizer(kube))
    app = web.Application()

    def note(server: AutomationServer) -> None:
        found["port"] = server.port

    app.cleanup_ctx.append(beside("127.0.0.1:0", TlsFiles(serving, ca=False), parts, note))
    runner = web.AppRunner(app)
    await runner.setup()
    started.set()
    while not stop.is_set():
        await asyncio.sleep(0.02)
    await runner.cleanup()
    await nodes.close()
    kube.close()
    await close_api()


async def _serve_api(directory: Path, cluster: CertAuthority, api: FakeApi) -> tuple[int, Any]:
    leaf = cluster.issue("apiserver", "127.0.0.1").write(directory / "apiserver")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(leaf / "tls.crt", leaf / "tls.key")
    context.load_verify_locations(leaf / "ca.crt")
    context.verify_mode = ssl.CERT_OPTIONAL
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", api.serve)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    return runner.addresses[0][1], runner.cleanup
