"""From a VMI to the virt-handler of its node: address, cached channel, version handshake."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from virt_api.kube import Kube
from virt_api.problems import Problem, from_node
from virt_core import __version__
from virt_core.apis.names import ANNOTATION_HANDLER_ADDRESS, TLS_NAME_HANDLER
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import ApiError
from virt_core.rpc.handshake import PROTOCOL_VERSIONS
from virt_core.rpc.tls import TlsFiles, TlsMaterial
from virt_protos.node.v1 import node_pb2, node_pb2_grpc

CALL_TIMEOUT_S = 20.0
_HELLO_TIMEOUT_S = 5.0
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.ssl_target_name_override", TLS_NAME_HANDLER),
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 20000),
    ("grpc.keepalive_timeout_ms", 5000),
    # A picture of a screen.
    ("grpc.max_receive_message_length", 10 << 20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 3000),
]


class Endpoint:
    """The node of one VMI."""

    def __init__(self, name: str, stub: Any) -> None:
        self.name, self.stub = name, stub

    async def call(self, method: str, request: Any) -> Any:
        """A unary call. Raises Problem."""
        try:
            return await getattr(self.stub, method)(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise from_node(error.code(), error.details() or "", self.name) from error


class Nodes:
    """One channel for each address, made anew when our certificates change. Lives in the event loop."""

    def __init__(self, kube: Kube, tls: TlsFiles, handler_port: int) -> None:
        self._kube, self._tls, self._handler_port = kube, tls, handler_port
        self._channels: dict[str, tuple[TlsMaterial, grpc.aio.Channel]] = {}

    async def of(self, vmi: VirtualMachineInstance) -> Endpoint:
        """Raises Problem 400 when the node is not known, 503 when it does not answer."""
        name = vmi.status.node_name
        if not name:
            raise Problem(400, f"VMI {vmi.metadata.name} has no node yet")
        address = await self._address(name)
        known = self._channels.get(address)
        if known is not None and known[0] == self._tls.current():
            return Endpoint(name, node_pb2_grpc.NodeStub(known[1]))  # type: ignore[no-untyped-call,unused-ignore]
        return await self._connect(name, address)

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for _, channel in channels:
            await channel.close(grace=None)

    async def _address(self, node: str) -> str:
        try:
            found = await self._kube.node(node)
        except ApiError as error:
            raise Problem(400, f"node {node} can not be looked up: {error}") from error
        address = found.metadata.annotations.get(ANNOTATION_HANDLER_ADDRESS, "")
        if not address:
            raise Problem(400, f"node {node} does not say where its virt-handler is ({ANNOTATION_HANDLER_ADDRESS})")
        host, separator, port = address.rpartition(":")
        return address if separator and port.isdigit() and host else f"{address}:{self._handler_port}"

    async def _connect(self, node: str, address: str) -> Endpoint:
        material = self._tls.current()
        channel = grpc.aio.secure_channel(address, self._tls.channel_credentials(), options=_OPTIONS)
        endpoint = Endpoint(node, node_pb2_grpc.NodeStub(channel))  # type: ignore[no-untyped-call,unused-ignore]
        try:
            await self._hello(endpoint)
        except Problem:
            await channel.close(grace=None)
            raise
        # Streams may still run on the old channel; it goes with the last of them.
        self._channels[address] = (material, channel)
        return endpoint

    async def _hello(self, endpoint: Endpoint) -> None:
        request = node_pb2.HelloRequest(versions=PROTOCOL_VERSIONS, program_version=__version__)
        try:
            answer = await endpoint.stub.Hello(request, timeout=_HELLO_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise from_node(error.code(), error.details() or "", endpoint.name) from error
        if answer.version not in PROTOCOL_VERSIONS:
            raise Problem(500, f"virt-handler on node {endpoint.name} speaks protocol {answer.version}, we do not")
