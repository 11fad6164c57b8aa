"""A websocket and a gRPC stream, joined.

Each direction holds one chunk at most: when one side does not read, the other is not read from either.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Any, cast

import grpc
import grpc.aio
from aiohttp import WSCloseCode, WSMsgType, web

from virt_core.apis.names import STREAM_MOVED
from virt_core.runtime.logs import get_logger
from virt_protos.node.v1 import node_pb2

log = get_logger(__name__)

#: Missing in the stubs.
_EOF = cast(Any, grpc.aio).EOF

CHUNK_BYTES = 32 << 10
#: The biggest that UDP over IPv4 can carry.
DATAGRAM_BYTES = 65507
_CLOSE_TIMEOUT_S = 5.0
_CLOSE_REASON_LIMIT = 120


class End(Enum):
    """How a stream ended. A displaced client's websocket is still open, for the caller to cut."""

    CLOSED = "closed"
    DISPLACED = "displaced"


async def splice(socket_: web.WebSocketResponse, call: Any, *, datagrams: bool = False) -> End:
    """Copies both ways until one side ends, then ends the other."""
    tasks = [asyncio.create_task(_upwards(socket_, call, datagrams)), asyncio.create_task(_downwards(socket_, call))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, grpc.aio.AioRpcError | ConnectionError):
            log.error("a stream broke", error=repr(result))
    try:
        async with asyncio.timeout(_CLOSE_TIMEOUT_S):
            return await _close(socket_, call)
    except TimeoutError:
        log.info("the client did not take the end of its stream")
    return End.CLOSED


async def _upwards(socket_: web.WebSocketResponse, call: Any, datagrams: bool) -> None:
    """User to machine. Text frames carry nothing that a device could take, so they are ignored."""
    async for message in socket_:
        if message.type is not WSMsgType.BINARY:
            continue
        if datagrams:
            # In one piece or not at all, like any datagram.
            if len(message.data) <= DATAGRAM_BYTES:
                await call.write(node_pb2.StreamRequest(data=message.data))
            continue
        for start in range(0, len(message.data), CHUNK_BYTES):
            await call.write(node_pb2.StreamRequest(data=message.data[start : start + CHUNK_BYTES]))


async def _downwards(socket_: web.WebSocketResponse, call: Any) -> None:
    """Machine to user."""
    while True:
        response = await call.read()
        if response is _EOF:
            return
        if response.data:
            await socket_.send_bytes(response.data)


async def _close(socket_: web.WebSocketResponse, call: Any) -> End:
    """Says why: 1000 at the end of the stream, 1012 when its guest is on another node by now and can be had there,
    1011 with a sentence when the node failed."""
    if socket_.closed:
        return End.CLOSED
    code = await call.code() if call.done() else grpc.StatusCode.OK
    if code is grpc.StatusCode.ABORTED:
        return End.DISPLACED
    if code in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED):
        await socket_.close(code=WSCloseCode.OK)
        return End.CLOSED
    details = await call.details() or "the node ended the stream"
    moved = code is grpc.StatusCode.UNAVAILABLE and details == STREAM_MOVED
    status = WSCloseCode.SERVICE_RESTART if moved else WSCloseCode.INTERNAL_ERROR
    await socket_.close(code=status, message=details.encode()[:_CLOSE_REASON_LIMIT])
    return End.CLOSED
