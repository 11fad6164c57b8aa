"""The HTTPS server: an event loop in a thread of its own, under the supervisor."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import web

from virt_core.apis.names import TLS_CERT_FILE, TLS_KEY_FILE
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

_TLS_CHECK_S = 30.0
_SHUTDOWN_S = 5.0
_BACKLOG = 512


class ServingTls:
    """The server's certificate, read again when it changes; clients may show one of the front proxy's CA."""

    def __init__(self, directory: str | Path, client_ca: str | Path | None) -> None:
        self._cert, self._key = Path(directory) / TLS_CERT_FILE, Path(directory) / TLS_KEY_FILE
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A websocket upgrade needs HTTP/1.1.
        self.context.set_alpn_protocols(["http/1.1"])
        if client_ca:
            self.context.load_verify_locations(str(client_ca))
            self.context.verify_mode = ssl.CERT_OPTIONAL
        self._seen: tuple[int, ...] = ()
        self.refresh()

    def refresh(self) -> bool:
        """Loads the files if they have changed; new connections get the new certificate."""
        stats = (self._cert.stat(), self._key.stat())
        seen = tuple(value for stat in stats for value in (stat.st_mtime_ns, stat.st_ino))
        if seen == self._seen:
            return False
        self.context.load_cert_chain(self._cert, self._key)
        self._seen = seen
        return True


class HttpServer:
    """`build` makes the application inside the loop; `close` releases what it holds."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: ServingTls,
        build: Callable[[], tuple[web.Application, Callable[[], Awaitable[None]]]],
    ) -> None:
        """Binds at once, so that a taken port fails the start-up. Port 0: see `.port`."""
        self._tls, self._build = tls, build
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise OSError(f"can not listen on {host}:{port}: {os.strerror(error.errno or 0)}") from error
        self.port: int = self._socket.getsockname()[1]
        self.started = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Serves until the stop. A thread body for the supervisor."""
        asyncio.run(self._serve(stop))

    async def _serve(self, stop: threading.Event) -> None:
        app, close = self._build()
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_S, handler_cancellation=True)
        await runner.setup()
        try:
            site = web.SockSite(runner, self._socket, ssl_context=self._tls.context, backlog=_BACKLOG)
            await site.start()
            log.info("serving", port=self.port)
            self.started.set()
            await self._until(stop)
        finally:
            await runner.cleanup()
            await close()

    async def _until(self, stop: threading.Event) -> None:
        waiting = asyncio.get_running_loop().run_in_executor(None, stop.wait)
        while True:
            done, _ = await asyncio.wait([waiting], timeout=_TLS_CHECK_S)
            if done:
                return
            self._refresh_tls()

    def _refresh_tls(self) -> None:
        try:
            if self._tls.refresh():
                log.info("serving certificate renewed")
        except (OSError, ssl.SSLError) as error:
            log.warning("the serving certificate can not be read, keeping the old one", error=str(error))
