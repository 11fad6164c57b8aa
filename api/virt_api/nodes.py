"""From a VMI to the virt-handler of its node: address, cached channel, version handshake."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, NamedTuple

import grpc
import grpc.aio

from virt_api.kube import Kube
from virt_api.nodeproblems import from_node
from virt_api.problems import Problem
from virt_core import __version__
from virt_core.apis.names import ANNOTATION_HANDLER_ADDRESS, INSTALL_NAMESPACE, tls_name_node
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.errors import ApiError
from virt_core.rpc.handshake import PROTOCOL_VERSIONS
from virt_core.rpc.tls import TlsFiles, TlsMaterial
from virt_core.runtime.keypair import BadPair
from virt_protos.node.v1 import node_pb2, node_pb2_grpc

CALL_TIMEOUT_S = 20.0
_HELLO_TIMEOUT_S = 5.0
#: How long a node that did not answer last time has to be back; a little more than the longest back-off below.
_BACK_S = 4.0
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 20000),
    ("grpc.keepalive_timeout_ms", 5000),
    # A picture of a screen.
    ("grpc.max_receive_message_length", 10 << 20),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 3000),
]


class Endpoint:
    """The node of one VMI. Whoever has a stream open holds on to this, and this to its channel: when our certificates
    change, the others get a new channel, and the old one ends with its last stream."""

    def __init__(self, name: str, channel: grpc.aio.Channel) -> None:
        self.name, self._channel = name, channel
        self.stub: Any = node_pb2_grpc.NodeStub(channel)  # type: ignore[no-untyped-call,unused-ignore]

    async def call(self, method: str, request: Any) -> Any:
        """A unary call. Raises Problem."""
        try:
            return await getattr(self.stub, method)(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise from_node(error.code(), error.details() or "", self.name) from error


class Place(NamedTuple):
    """Where a node's virt-handler answers, and the name that its certificate must carry: an address proves nothing."""

    address: str
    tls_name: str


class Nodes:
    """One channel for each place, made anew when our certificates change. Lives in the event loop."""

    def __init__(self, kube: Kube, tls: TlsFiles, handler_port: int, namespace: str = INSTALL_NAMESPACE) -> None:
        self._kube, self._tls, self._handler_port, self._namespace = kube, tls, handler_port, namespace
        self._channels: dict[Place, tuple[TlsMaterial, grpc.aio.Channel]] = {}

    async def of(self, vmi: VirtualMachineInstance) -> Endpoint:
        """The node of the Pod that has the guest, whatever other Pods there are: that is what nodeName says. Raises
        Problem 400 when the node is not known, 503 when it does not answer."""
        name = vmi.status.node_name
        if not name:
            raise Problem(400, f"VMI {vmi.metadata.name} has no node yet")
        return await self.named(name)

    async def named(self, name: str) -> Endpoint:
        """Likewise, of a node that is known already."""
        place = await self._place(name)
        known, material = self._channels.get(place), self._material()
        if known is not None and known[0] == material:
            await _awaken(known[1])
            return Endpoint(name, known[1])
        try:
            return await self._connect(name, place, material)
        except Problem as problem:
            if known is None or problem.code != 503:
                raise
            # Perhaps the node does not trust our new certificate yet; the old connection is as good as it was.
            return Endpoint(name, known[1])

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for _, channel in channels:
            await channel.close(grace=None)

    async def _place(self, node: str) -> Place:
        try:
            found = await self._kube.node(node)
        except ApiError as error:
            raise Problem(400, f"node {node} cannot be looked up: {error}") from error
        address = found.metadata.annotations.get(ANNOTATION_HANDLER_ADDRESS, "")
        if not address:
            raise Problem(400, f"node {node} does not say where its virt-handler is ({ANNOTATION_HANDLER_ADDRESS})")
        host, separator, port = address.rpartition(":")
        whole = address if separator and port.isdigit() and host else f"{address}:{self._handler_port}"
        return Place(whole, tls_name_node(node, self._namespace))

    def _material(self) -> TlsMaterial:
        try:
            return self._tls.current()
        except (OSError, BadPair) as error:
            raise Problem(503, f"virt-api has no certificate for calls to the nodes yet: {error}") from error

    async def _connect(self, node: str, place: Place, material: TlsMaterial) -> Endpoint:
        credentials = grpc.ssl_channel_credentials(material.ca, material.key, material.cert)
        options = [*_OPTIONS, ("grpc.ssl_target_name_override", place.tls_name)]
        channel = grpc.aio.secure_channel(place.address, credentials, options=options)
        endpoint = Endpoint(node, channel)
        try:
            await self._hello(endpoint)
        except Problem:
            await channel.close(grace=None)
            raise
        self._channels[place] = (material, channel)
        return endpoint

    async def _hello(self, endpoint: Endpoint) -> None:
        request = node_pb2.HelloRequest(versions=PROTOCOL_VERSIONS, program_version=__version__)
        try:
            answer = await endpoint.stub.Hello(request, timeout=_HELLO_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise from_node(error.code(), error.details() or "", endpoint.name) from error
        if answer.version not in PROTOCOL_VERSIONS:
            raise Problem(
                500, f"virt-handler on node {endpoint.name} speaks protocol {answer.version}, which virt-api does not"
            )


async def _awaken(channel: grpc.aio.Channel) -> None:
    """After a failure a channel refuses every call until its back-off ends, though virt-handler may be back by now."""
    if channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
        with suppress(TimeoutError):
            await asyncio.wait_for(channel.channel_ready(), _BACK_S)
