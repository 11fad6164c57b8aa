"""The channel protocol of Kubernetes' websockets: each message begins with the number of its stream."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import WSMsgType, web

from virt_local.node.server.lookup import refuse

V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
_MAX_MESSAGE = 1 << 20
_HEARTBEAT_S = 30.0


class Size(msgspec.Struct):
    width: int = msgspec.field(default=80, name="Width")
    height: int = msgspec.field(default=24, name="Height")


class Message(msgspec.Struct, frozen=True):
    channel: int
    data: bytes


class Channels:
    """One websocket, seen as its streams."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    @property
    def response(self) -> web.StreamResponse:
        return self._socket

    async def receive(self) -> Message | None:
        """The next message; None when the client has gone. In v5 an end of a stream comes as CLOSE."""
        while True:
            message = await self._socket.receive()
            if message.type is WSMsgType.TEXT:
                data = message.data.encode()
            elif message.type is WSMsgType.BINARY:
                data = message.data
            else:
                return None
            if data:
                return Message(data[0], data[1:])

    async def send(self, channel: int, data: bytes) -> None:
        if not self._socket.closed:
            await self._socket.send_bytes(bytes([channel]) + data)

    async def close(self) -> None:
        if not self._socket.closed:
            await self._socket.close()

    async def finish(self, status: dict[str, Any]) -> None:
        await self.send(ERROR, msgspec.json.encode(status))
        if not self._socket.closed:
            await self._socket.close()


def check_protocol(request: web.Request, protocols: tuple[str, ...]) -> None:
    offered = [name.strip() for name in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if not set(offered) & set(protocols):
        raise refuse(400, "BadRequest", f"this endpoint is a websocket that speaks {' or '.join(protocols)}")


async def accept(request: web.Request, protocols: tuple[str, ...] = (V5, V4)) -> Channels:
    check_protocol(request, protocols)
    socket = web.WebSocketResponse(protocols=protocols, max_msg_size=_MAX_MESSAGE, heartbeat=_HEARTBEAT_S)
    await socket.prepare(request)
    return Channels(socket)


def success() -> dict[str, Any]:
    return {"metadata": {}, "status": "Success"}


def exit_status(code: int) -> dict[str, Any]:
    if code == 0:
        return success()
    return {
        "metadata": {},
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def failure(message: str) -> dict[str, Any]:
    return {"metadata": {}, "status": "Failure", "reason": "InternalError", "message": message, "code": 500}
