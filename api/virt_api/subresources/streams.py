"""Subresources that are byte streams: console, vnc, usbredir, vsock and portforward.

A websocket towards the user, a gRPC stream towards the node. The node is dialled before the upgrade, so a failure is a
plain HTTP answer.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakSet

import grpc
import grpc.aio
from aiohttp import WSCloseCode, web

from virt_api.nodeproblems import from_node
from virt_api.nodes import Endpoint
from virt_api.problems import Problem
from virt_api.subresources import checks
from virt_api.subresources.actions import vmi_ref
from virt_api.subresources.call import Call
from virt_api.subresources.splice import CHUNK_BYTES, End, splice
from virt_core.apis.names import SUBPROTOCOL_PLAIN
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import Gauge
from virt_protos.node.v1 import node_pb2

__all__ = ["CHUNK_BYTES", "OPEN_SOCKETS", "STREAMS", "close_all", "open_stream"]

log = get_logger(__name__)

#: Missing in the stubs.
_EOF = cast(Any, grpc.aio).EOF

OPEN_TIMEOUT_S = 10.0
MESSAGE_LIMIT = 1 << 20
_TRUE = frozenset({"true", "1", "t", "True", "TRUE", "T"})
_FALSE = frozenset({"false", "0", "f", "False", "FALSE", "F"})
_PROTOCOLS = {"tcp": node_pb2.STREAM_KIND_TCP, "udp": node_pb2.STREAM_KIND_UDP}
#: A dead peer is noticed after a minute and a half; a terminal that is merely stopped (^S) is not dead.
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
#: What clients look for in the answer to an upgrade that a full machine refuses.
BAD_HANDSHAKE = "websocket: bad handshake"

#: So that a stop of virt-api can say goodbye to everybody.
OPEN_SOCKETS: web.AppKey[WeakSet[web.WebSocketResponse]] = web.AppKey("open_sockets", WeakSet)

STREAMS = Gauge("virt_api_streams", "Open streams to guests.", ("kind",))


@dataclass(frozen=True, slots=True)
class Opening:
    """What the node is to open."""

    name: str
    kind: Any
    preserve: bool = False
    port: int = 0
    cid: int = 0
    tls: bool = False


async def console(call: Call) -> web.StreamResponse:
    vmi = await call.vmi()
    checks.console(vmi)
    return await _serve(call, vmi, Opening("console", node_pb2.STREAM_KIND_SERIAL_CONSOLE))


async def vnc(call: Call) -> web.StreamResponse:
    preserve = flag(call, "preserveSession", default=False)
    vmi = await call.vmi()
    checks.vnc(vmi)
    return await _serve(call, vmi, Opening("vnc", node_pb2.STREAM_KIND_VNC, preserve=preserve))


async def usbredir(call: Call) -> web.StreamResponse:
    vmi = await call.vmi()
    checks.usbredir(vmi)
    try:
        return await _serve(call, vmi, Opening("usbredir", node_pb2.STREAM_KIND_USBREDIR))
    except Problem as problem:
        raise Problem(problem.code, f"{problem.message} ({BAD_HANDSHAKE})") from problem


async def vsock(call: Call) -> web.StreamResponse:
    vmi = await call.vmi()
    checks.vsock(vmi)
    port = number(call.request.query.get("port", ""), 0xFFFFFFFE)
    tls = flag(call, "tls", default=True)
    cid = vmi.status.vsock_cid or 0
    return await _serve(call, vmi, Opening("vsock", node_pb2.STREAM_KIND_VSOCK, port=port, cid=cid, tls=tls))


async def port_forward_to_vmi(call: Call) -> web.StreamResponse:
    return await _forward(call, await call.vmi())


async def port_forward_to_vm(call: Call) -> web.StreamResponse:
    vm = await call.vm()
    if not vm.status.created:
        raise Problem(409, f"VM {call.name} is not running", name=call.name, kind="virtualmachine")
    return await _forward(call, await call.vmi())


async def _forward(call: Call, vmi: VirtualMachineInstance) -> web.StreamResponse:
    """To the Pod's address, which the node knows: nobody outside names an address."""
    checks.port_forward(vmi)
    port = number(call.request.match_info["port"], 65535)
    protocol = call.request.match_info.get("protocol", "tcp")
    if protocol not in _PROTOCOLS:
        raise Problem(400, f"{protocol} cannot be forwarded: the protocol must be tcp or udp")
    return await _serve(call, vmi, Opening("portforward", _PROTOCOLS[protocol], port=port))


def number(text: str, limit: int) -> int:
    """Raises Problem 400."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and 0 < int(text) <= limit):
        raise Problem(400, f"{text!r} is not a port: it must be from 1 to {limit}")
    return int(text)


def flag(call: Call, name: str, *, default: bool) -> bool:
    """Raises Problem 400."""
    text = call.request.query.get(name, "")
    if not text:
        return default
    if text not in _TRUE and text not in _FALSE:
        raise Problem(400, f"{name}={text} is neither true nor false")
    return text in _TRUE


async def _serve(call: Call, vmi: VirtualMachineInstance, opening: Opening) -> web.StreamResponse:
    request, name = call.request, opening.name
    socket_ = web.WebSocketResponse(protocols=(SUBPROTOCOL_PLAIN,), max_msg_size=MESSAGE_LIMIT, compress=False)
    if not socket_.can_prepare(request).ok:
        raise Problem(400, f"{name} is a websocket: an upgrade request is needed")
    node = await call.nodes.of(vmi)
    stream = await open_stream(node, vmi, opening.kind, opening)
    STREAMS.inc(name)
    log.info("stream opened", kind=name, namespace=call.namespace, vmi=call.name, user=call.who.user, node=node.name)
    try:
        await socket_.prepare(request)
        request.app[OPEN_SOCKETS].add(socket_)
        _keep_alive(request)
        end = await splice(socket_, stream, datagrams=opening.kind == node_pb2.STREAM_KIND_UDP)
        if end is End.DISPLACED and request.transport is not None:
            # No close frame: the clients of a console take the bare end of the connection for just this.
            request.transport.close()
    finally:
        STREAMS.inc(name, by=-1)
        stream.cancel()
        log.info("stream closed", kind=name, namespace=call.namespace, vmi=call.name)
    return socket_


async def open_stream(node: Endpoint, vmi: VirtualMachineInstance, kind: Any, opening: Opening | None = None) -> Any:
    """The gRPC stream, connected to the guest. Raises Problem."""
    stream = node.stub.Stream()
    wanted = opening or Opening("", kind)
    message = node_pb2.OpenStream(
        vmi=vmi_ref(vmi),
        kind=kind,
        preserve_session=wanted.preserve,
        port=wanted.port,
        cid=wanted.cid,
        tls=wanted.tls,
    )
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            await stream.write(node_pb2.StreamRequest(open=message))
            first = await stream.read()
    except TimeoutError:
        stream.cancel()
        raise from_node(grpc.StatusCode.DEADLINE_EXCEEDED, "the device did not open in time", node.name) from None
    except grpc.aio.AioRpcError as error:
        raise from_node(error.code(), error.details() or "", node.name) from error
    except asyncio.InvalidStateError:
        first = _EOF
    if first is _EOF or not first.HasField("opened"):
        code, details = await stream.code(), await stream.details()
        stream.cancel()
        raise from_node(code, details or "the node closed the stream at once", node.name)
    return stream


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
