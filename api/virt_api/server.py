"""The HTTPS server: an event loop in a thread of its own, under the supervisor."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from asyncio import FIRST_COMPLETED
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web

from virt_api.serving.crowd import Crowd
from virt_api.serving.limits import Limits
from virt_api.serving.listener import Listener
from virt_api.serving.requests import in_turn
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.keypair import load_pair
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

_TLS_CHECK_S = 30.0
_SHUTDOWN_S = 5.0
#: How long callers have to hear that they should not use their open connections again.
_DRAIN_S = 1.0
_BACKLOG = 512
#: Of a body for which nobody has asked yet.
_READ_AHEAD = 64 << 10


class ServingTls:
    """The server's certificate, and the CA of the client certificates that it asks for.

    Each handshake gets the newest of both: the listening context hands it over to one that is made anew whenever
    something changes. Old connections go on with what they began with. A resumed session would bring back the trust
    of the day it began, so there are none.
    """

    def __init__(self, files: TlsFiles, client_ca: bytes = b"") -> None:
        self._files, self._client_ca = files, client_ca
        self._lock = threading.Lock()
        self._shown = files.current()
        self._newest = self._make()
        #: For the listening socket.
        self.context = self._make()
        self.context.sni_callback = self._hand_over

    def trust(self, client_ca: bytes) -> None:
        """Another CA for client certificates, from any thread; empty: ask for none."""
        with self._lock:
            before, self._client_ca = self._client_ca, client_ca
            try:
                self._newest = self._make()
            except (ssl.SSLError, ValueError) as error:
                self._client_ca = before
                log.error("the CA of client certificates cannot be used, keeping the old one", error=str(error))
                return
            # Whether a certificate is asked for is settled by the listening context, by whom it is signed is not.
            self.context.verify_mode = self._newest.verify_mode

    def refresh(self) -> None:
        """Takes over what is new on disk."""
        material = self._files.current()
        with self._lock:
            if material is self._shown:
                return
            self._shown = material
            self._newest = self._make()
        log.info("serving certificate renewed")

    def _hand_over(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        self.refresh()
        connection.context = self._newest

    def _make(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        # A websocket upgrade needs HTTP/1.1.
        context.set_alpn_protocols(["http/1.1"])
        if self._client_ca:
            context.load_verify_locations(cadata=self._client_ca.decode("ascii"))
            context.verify_mode = ssl.CERT_OPTIONAL
        load_pair(context, self._shown.cert, self._shown.key)
        return context


class HttpServer:
    """`build` makes the application inside the loop; `close` releases what it holds."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: ServingTls,
        build: Callable[[], tuple[web.Application, Callable[[], Awaitable[None]]]],
        limits: Limits | None = None,
    ) -> None:
        """Binds at once, so that a taken port fails the start-up. Port 0: see `.port`."""
        self._tls, self._build, self._limits = tls, build, limits or Limits()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise OSError(f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}") from error
        self.port: int = self._socket.getsockname()[1]
        self.started = threading.Event()
        #: Nobody is served any more.
        self.ended = threading.Event()
        self._draining = False

    def run(self, stop: threading.Event) -> None:
        """Serves until the stop. A thread body for the supervisor."""
        try:
            asyncio.run(self._serve(stop))
        finally:
            self.ended.set()

    async def _serve(self, stop: threading.Event) -> None:
        app, close = self._build()
        app.on_response_prepare.append(self._last_answer)
        app.middlewares.insert(0, in_turn)
        runner = self._runner(app)
        await runner.setup()
        try:
            assert runner.server is not None
            listener = Listener(self._socket, self._tls.context, Crowd(self._limits), runner.server)
            listening = asyncio.create_task(listener.run())
            log.info("serving", port=self.port)
            self.started.set()
            await self._until(stop, listening)
            await self._drain(runner)
            listening.cancel()
            await asyncio.wait([listening])
        finally:
            await runner.cleanup()
            await close()

    def _runner(self, app: web.Application) -> web.AppRunner:
        return web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=_SHUTDOWN_S,
            handler_cancellation=True,
            keepalive_timeout=self._limits.idle_s,
            lingering_time=self._limits.rest_s,
            read_bufsize=_READ_AHEAD,
            auto_decompress=False,
        )

    async def _drain(self, runner: web.AppRunner) -> None:
        """A caller that writes on a connection while we close it cannot know whether it was heard. So those that are
        busy close theirs themselves first, because the next answer asks them to."""
        self._draining = True
        end = asyncio.get_running_loop().time() + _DRAIN_S
        while runner.server and runner.server.connections and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.05)

    async def _last_answer(self, _request: web.Request, response: web.StreamResponse) -> None:
        if self._draining and not isinstance(response, web.WebSocketResponse):
            response.headers[hdrs.CONNECTION] = "close"
            response.force_close()

    async def _until(self, stop: threading.Event, listening: asyncio.Task[None]) -> None:
        waiting = asyncio.create_task(asyncio.to_thread(stop.wait))
        while True:
            done, _ = await asyncio.wait({waiting, listening}, timeout=_TLS_CHECK_S, return_when=FIRST_COMPLETED)
            if listening in done:
                listening.result()  # It never ends by itself, so this raises.
            if done:
                return
            # Handshakes do this too; here it is for the metric of a server that nobody calls.
            self._tls.refresh()
