"""The HTTPS server of the agent. Only the API server's client certificate opens it."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Middleware

from virt_core.apis.base import encode
from virt_core.runtime.logs import get_logger
from virt_local.node.runtime.runc import Runc
from virt_local.node.server.attach import attach_handler
from virt_local.node.server.exec import Handler, exec_handler
from virt_local.node.server.forward import forward_handler
from virt_local.node.server.logs import logs_handler
from virt_local.node.server.lookup import Lookup, refuse

log = get_logger(__name__)

_STOP_S = 2.0


@dataclass(frozen=True)
class Tls:
    cert: str
    key: str
    client_ca: str
    client_name: str

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.client_ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.cert, self.key)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


def common_name(certificate: dict[str, object] | None) -> str:
    subject = (certificate or {}).get("subject", ())
    assert isinstance(subject, tuple)
    return next((value for part in subject for key, value in part if key == "commonName"), "")


def only_from(name: str) -> Middleware:
    """Every certificate of the cluster's authority passes TLS; only one name may do anything here."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        if common_name(certificate) != name:
            raise refuse(403, "Forbidden", "only the API server may use this endpoint")
        return await handler(request)

    return check


def build_app(
    lookup: Lookup, runc: Runc, netns: Path, *, client_name: str, now: Callable[[], datetime]
) -> web.Application:
    app = web.Application(middlewares=[only_from(client_name)] if client_name else [])

    async def pods(_: web.Request) -> web.StreamResponse:
        body = {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": lookup.pods()}
        return web.Response(body=encode(body), content_type="application/json")

    async def healthz(_: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    where = "/{namespace}/{pod}/{container}"
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/pods", pods)
    app.router.add_get(f"/containerLogs{where}", logs_handler(lookup, now))
    for method in ("GET", "POST"):
        app.router.add_route(method, f"/exec{where}", exec_handler(lookup, runc))
        app.router.add_route(method, f"/attach{where}", attach_handler(lookup))
        app.router.add_route(method, "/portForward/{namespace}/{pod}", forward_handler(lookup, netns))
    return app


async def _serve(app: web.Application, host: str, port: int, tls: ssl.SSLContext | None, stop: threading.Event) -> None:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        log.info("serving logs and exec", address=host, port=port)
        await asyncio.to_thread(stop.wait)
    finally:
        await runner.cleanup()


def run_server(app: web.Application, host: str, port: int, tls: Tls, stop: threading.Event) -> None:
    """Serves until the stop; a thread of the supervisor."""
    asyncio.run(_serve(app, host, port, tls.context(), stop))
