"""A websocket server in a thread that plays virt-api's streams: an answer first if there is one, then an echo."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import WSMsgType, web

from virt_core.kube.connect import Connection


class EchoServer:
    """Sends every message back in capitals. `bye` makes it close with `close_code`, `big` sends 200 000 x."""

    def __init__(self) -> None:
        self.answers: list[web.Response] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.close_code = 1000
        self.port = 0
        self.received: list[bytes] = []
        self.noise = True

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        self.paths.append(request.path_qs)
        if self.answers:
            return self.answers.pop(0)
        ws = web.WebSocketResponse(protocols=("plain.kubevirt.io",), max_msg_size=0)
        await ws.prepare(request)
        if self.noise:
            await ws.send_str("a text frame is ignored")
            await ws.ping()
        async for message in ws:
            if message.type is WSMsgType.BINARY:
                await self._answer(ws, message.data)
        return ws

    async def _answer(self, ws: web.WebSocketResponse, data: bytes) -> None:
        self.received.append(data)
        if data == b"bye":
            await ws.close(code=self.close_code, message=b"the guest is gone")
        elif data == b"big":
            await ws.send_bytes(b"x" * 200_000)
        else:
            await ws.send_bytes(data.upper())

    def connection(self) -> Connection:
        return Connection(f"http://127.0.0.1:{self.port}", token="secret")


def refusal(status: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": status, "message": message}, status=status)


@contextmanager
def serving(server: EchoServer, tls: ssl.SSLContext | None = None) -> Iterator[EchoServer]:
    loop = asyncio.new_event_loop()
    app = web.Application()
    app.router.add_get("/{tail:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        server.port = runner.addresses[0][1]

    loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()
