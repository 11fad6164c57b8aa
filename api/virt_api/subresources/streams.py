"""Subresources that are byte streams: a websocket towards the user, a gRPC stream towards the node.

The node is dialled before the upgrade, so a failure is a plain HTTP answer. Each direction holds one chunk at most:
when one side does not read, the other is not read from either.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast
from weakref import WeakSet

import grpc
import grpc.aio
from aiohttp import WSCloseCode, WSMsgType, web

from virt_api.nodes import Endpoint, Nodes
from virt_api.problems import Problem, from_node
from virt_api.subresources.actions import vmi_ref
from virt_core.apis.names import SUBPROTOCOL_PLAIN
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import Gauge
from virt_protos.node.v1 import node_pb2

log = get_logger(__name__)

#: Missing in the stubs.
_EOF = cast(Any, grpc.aio).EOF

OPEN_TIMEOUT_S = 10.0
CHUNK_BYTES = 32 << 10
MESSAGE_LIMIT = 1 << 20
_CLOSE_TIMEOUT_S = 5.0
_CLOSE_REASON_LIMIT = 120
#: A dead peer is noticed after a minute and a half; a terminal that is merely stopped (^S) is not dead.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))

#: So that a stop of virt-api can say goodbye to everybody.
OPEN_SOCKETS: web.AppKey[WeakSet[web.WebSocketResponse]] = web.AppKey("open_sockets", WeakSet)

STREAMS = Gauge("virt_api_streams", "Open console and VNC streams", ("kind",))


async def console(request: web.Request, vmi: VirtualMachineInstance, nodes: Nodes) -> web.StreamResponse:
    return await _serve(request, vmi, nodes, node_pb2.STREAM_KIND_SERIAL_CONSOLE, "console")


async def vnc(request: web.Request, vmi: VirtualMachineInstance, nodes: Nodes) -> web.StreamResponse:
    return await _serve(request, vmi, nodes, node_pb2.STREAM_KIND_VNC, "vnc")


async def _serve(
    request: web.Request, vmi: VirtualMachineInstance, nodes: Nodes, kind: Any, name: str
) -> web.StreamResponse:
    socket_ = web.WebSocketResponse(protocols=(SUBPROTOCOL_PLAIN,), max_msg_size=MESSAGE_LIMIT, compress=False)
    if not socket_.can_prepare(request).ok:
        raise Problem(400, f"{name} is a websocket: an upgrade request is needed")
    node = await nodes.of(vmi)
    call = await _open(node, vmi, kind)
    STREAMS.inc(name)
    log.info("stream opened", kind=name, namespace=vmi.metadata.namespace, vmi=vmi.metadata.name, node=node.name)
    try:
        await socket_.prepare(request)
        request.app[OPEN_SOCKETS].add(socket_)
        _keep_alive(request)
        await splice(socket_, call)
    finally:
        STREAMS.inc(name, by=-1)
        call.cancel()
        log.info("stream closed", kind=name, namespace=vmi.metadata.namespace, vmi=vmi.metadata.name)
    return socket_


async def _open(node: Endpoint, vmi: VirtualMachineInstance, kind: Any) -> Any:
    """The gRPC stream, connected to the device. Raises Problem."""
    call = node.stub.Stream()
    opening = node_pb2.OpenStream(vmi=vmi_ref(vmi), kind=kind)
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            await call.write(node_pb2.StreamRequest(open=opening))
            first = await call.read()
    except TimeoutError:
        call.cancel()
        raise from_node(grpc.StatusCode.DEADLINE_EXCEEDED, "the device did not open in time", node.name) from None
    except grpc.aio.AioRpcError as error:
        raise from_node(error.code(), error.details() or "", node.name) from error
    except asyncio.InvalidStateError:
        first = _EOF
    if first is _EOF or not first.HasField("opened"):
        code, details = await call.code(), await call.details()
        call.cancel()
        raise from_node(code, details or "the node closed the stream at once", node.name)
    return call


async def splice(socket_: web.WebSocketResponse, call: Any) -> None:
    """Copies both ways until one side ends, then ends the other."""
    tasks = [asyncio.create_task(_upwards(socket_, call)), asyncio.create_task(_downwards(socket_, call))]
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
            await _close(socket_, call)
    except TimeoutError:
        log.info("the client did not take the end of its stream")


async def _upwards(socket_: web.WebSocketResponse, call: Any) -> None:
    """User to machine. Text frames carry nothing that a device could take, so they are ignored."""
    async for message in socket_:
        if message.type is not WSMsgType.BINARY:
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


async def _close(socket_: web.WebSocketResponse, call: Any) -> None:
    """Says why: 1000 at the end of the stream, 1011 with a sentence when the node failed."""
    if socket_.closed:
        return
    if not call.done() or await call.code() in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED):
        await socket_.close(code=WSCloseCode.OK)
        return
    reason = (await call.details() or "the node ended the stream").encode()[:_CLOSE_REASON_LIMIT]
    await socket_.close(code=WSCloseCode.INTERNAL_ERROR, message=reason)


async def close_all(app: web.Application) -> None:
    """Ends every stream at once; clients see 1001 and may connect again."""
    sockets = app[OPEN_SOCKETS]
    closing = [socket_.close(code=WSCloseCode.GOING_AWAY, message=b"virt-api stops") for socket_ in list(sockets)]
    await asyncio.gather(*closing, return_exceptions=True)


def _keep_alive(request: web.Request) -> None:
    raw = request.get_extra_info("socket")
    if raw is None:
        return
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE:
        raw.setsockopt(socket.IPPROTO_TCP, option, value)
