"""virt-api's real server with real TLS, in front of a fake API server and a fake node that speaks the real protocol."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from framework.certs import CertAuthority

from virt_api import app
from virt_api.authn import Authenticator
from virt_api.authorizer import Authorizer
from virt_api.config import ClusterConfig
from virt_api.kube import Kube
from virt_api.nodes import Nodes
from virt_api.server import HttpServer, ServingTls
from virt_core.apis import names
from virt_core.apis.auth import SubjectAccessReview, TokenReview, TokenReviewStatus, UserInfo
from virt_core.apis.domain import DomainSpec
from virt_core.apis.meta import Condition, ObjectMeta
from virt_core.apis.nodes import Node
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus
from virt_core.kube.errors import NotFound
from virt_core.rpc.server import serve_tcp
from virt_core.rpc.status import failed_precondition
from virt_core.rpc.tls import TlsFiles, require_peer_name
from virt_core.runtime.clock import FakeClock
from virt_protos.launcher.v1 import launcher_pb2
from virt_protos.node.v1 import node_pb2, node_pb2_grpc

TOKEN = "good"


class FakeClient:
    """The API server: VMIs and nodes by name, one good token, and a policy that a test sets."""

    def __init__(self) -> None:
        self.vmis: dict[str, VirtualMachineInstance] = {}
        self.nodes: dict[str, Node] = {}
        self.allowed = True
        self.access: list[SubjectAccessReview] = []
        self.tokens: list[str] = []

    def get(self, cls: type[Any], name: str, namespace: str = "") -> Any:
        found: dict[str, Any] = self.nodes if cls is Node else self.vmis
        if name not in found:
            raise NotFound(404, "NotFound", f"{name} not found")
        return found[name]

    def create(self, obj: Any) -> Any:
        if isinstance(obj, TokenReview):
            self.tokens.append(obj.spec.token)
            good = obj.spec.token == TOKEN
            user = UserInfo(username="bob", groups=["devs"]) if good else None
            obj.status = TokenReviewStatus(authenticated=good, user=user)
        elif isinstance(obj, SubjectAccessReview):
            self.access.append(obj)
            obj.status.allowed = self.allowed
        return obj

    def raw(self, method: str, path: str, *, timeout_s: float | None = None) -> bytes:
        return b'{"gitVersion":"v1"}'


class FakeNode(node_pb2_grpc.NodeServicer):
    """Echoes streams; notes commands. `greeting` is sent first; `fail` makes a stream end with an error."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, str]] = []
        self.greeting = b""
        self.fail = ""
        self.refuse = ""

    def Hello(self, request: Any, context: Any) -> Any:
        require_peer_name(context, names.TLS_NAME_API)
        return node_pb2.HelloResponse(version=1, node_name="node1")

    def Pause(self, request: Any, context: Any) -> Any:
        return self._command("pause", request)

    def Unpause(self, request: Any, context: Any) -> Any:
        return self._command("unpause", request)

    def _command(self, name: str, request: Any) -> Any:
        self.commands.append((name, request.vmi.uid))
        return node_pb2.VMIResponse()

    def GetGuestInfo(self, request: Any, context: Any) -> Any:
        info = launcher_pb2.GetGuestInfoResponse(
            agent_version="7.2", hostname="guest", os_info=launcher_pb2.OSInfo(name="Debian", version_id="12")
        )
        return node_pb2.GetGuestInfoResponse(info=info)

    def Stream(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        opening = next(requests)
        self.commands.append(("open", opening.open.vmi.uid))
        if self.refuse:
            raise failed_precondition(self.refuse)
        yield node_pb2.StreamResponse(opened=node_pb2.StreamOpened())
        if self.greeting:
            yield node_pb2.StreamResponse(data=self.greeting)
        for request in requests:
            if request.data == b"bye":
                return
            if request.data == b"fail":
                raise failed_precondition("the device broke")
            yield node_pb2.StreamResponse(data=request.data)


@dataclass
class Rig:
    client: FakeClient
    node: FakeNode
    port: int
    ca: CertAuthority
    proxy_ca: CertAuthority
    directory: Path
    clock: FakeClock
    handler_tls: Path
    stop: threading.Event

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def sub(self, name: str, vmi: str = "vm1") -> str:
        return f"{self.url}/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/{vmi}/{name}"

    def tls(self, common_name: str = "", ca: CertAuthority | None = None) -> ssl.SSLContext:
        """Trusts the server; shows a client certificate if a name is given."""
        context = ssl.create_default_context(cadata=self.ca.pem.decode())
        if common_name:
            where = (ca or self.proxy_ca).issue(common_name).write(self.directory / f"client-{common_name}-{id(ca)}")
            context.load_cert_chain(where / "tls.crt", where / "tls.key")
        return context


def make_vmi(name: str = "vm1", *, phase: str = "Running", conditions: tuple[str, ...] = ()) -> VirtualMachineInstance:
    return VirtualMachineInstance(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"),
        spec=VirtualMachineInstanceSpec(domain=DomainSpec()),
        status=VirtualMachineInstanceStatus(
            phase=phase, node_name="node1", conditions=[Condition(type=type_, status="True") for type_ in conditions]
        ),
    )


@contextmanager
def running(directory: Path) -> Iterator[Rig]:
    ca, proxy_ca = CertAuthority("virtpod"), CertAuthority("front-proxy")
    handler_tls = ca.issue("virt-handler", names.TLS_NAME_HANDLER).write(directory / "handler")
    node = FakeNode()
    grpc_server = serve_node(node, handler_tls)
    client = FakeClient()
    address = {names.ANNOTATION_HANDLER_ADDRESS: f"127.0.0.1:{grpc_server.port}"}
    client.nodes["node1"] = Node(metadata=ObjectMeta(name="node1", annotations=address))
    client.vmis["vm1"] = make_vmi()
    serving = ca.issue("virt-api", names.TLS_NAME_SERVING, "localhost", "127.0.0.1").write(directory / "serving")
    own = ca.issue("virt-api", names.TLS_NAME_API).write(directory / "api")
    (directory / "proxy-ca.crt").write_bytes(proxy_ca.pem)
    clock = FakeClock()
    server = HttpServer(
        "127.0.0.1", 0, ServingTls(serving, directory / "proxy-ca.crt"), builder(client, TlsFiles(own), clock)
    )
    stop = threading.Event()
    thread = threading.Thread(target=server.run, args=(stop,), name="http")
    thread.start()
    try:
        assert server.started.wait(10)
        yield Rig(client, node, server.port, ca, proxy_ca, directory, clock, handler_tls, stop)
    finally:
        stop.set()
        thread.join(15)
        grpc_server.stop(0.5)
    assert not thread.is_alive()


def serve_node(node: FakeNode, tls: Path) -> Any:
    return serve_tcp("127.0.0.1:0", [lambda s: node_pb2_grpc.add_NodeServicer_to_server(node, s)], TlsFiles(tls))


def builder(client: FakeClient, tls: TlsFiles, clock: FakeClock) -> Callable[[], Any]:
    def build() -> tuple[web.Application, Callable[[], Awaitable[None]]]:
        kube = Kube(client)
        nodes = Nodes(kube, tls, 1)
        services = app.Services(
            kube=kube,
            nodes=nodes,
            authenticator=Authenticator(kube, clock, frozenset({"front-proxy-client"})),
            authorizer=Authorizer(kube),
            config=ClusterConfig(default_architecture="amd64"),
            clock=clock,
        )

        async def close() -> None:
            await nodes.close()
            kube.close()

        return app.build(services), close

    return build
