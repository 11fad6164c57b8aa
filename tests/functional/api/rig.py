"""virt-api's real server with real TLS, in front of a fake API server and a fake node that speaks the real protocol."""

from __future__ import annotations

import copy
import json
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
from aiohttp import web
from framework.certs import CertAuthority
from framework.supported import ALL_GATES

from virt_api import app
from virt_api.authn import Authenticator
from virt_api.authorizer import Authorizer
from virt_api.frontproxy import FrontProxy
from virt_api.kube import Kube
from virt_api.nodes import Nodes
from virt_api.server import HttpServer, ServingTls
from virt_api.uploads.tunnel import Forwarder
from virt_core.apis import names
from virt_core.apis.auth import SubjectAccessReview, TokenReview, TokenReviewStatus, UserInfo
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.domain import DomainSpec
from virt_core.apis.meta import Condition, ObjectMeta
from virt_core.apis.migration import VirtualMachineInstanceMigration
from virt_core.apis.nodes import Namespace, Node
from virt_core.apis.pods import Pod
from virt_core.apis.policy import MigrationPolicy
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine, VirtualMachineInstanceTemplateSpec, VirtualMachineSpec
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.apis.vmistatus import VirtualMachineInstanceNetworkInterface, VirtualMachineInstanceStatus
from virt_core.kube.configvalues import ClusterConfig
from virt_core.kube.connect import Connection
from virt_core.kube.errors import ApiError, Conflict, Invalid, NotFound
from virt_core.kube.patch import Patch
from virt_core.rpc.server import serve_tcp
from virt_core.rpc.status import RpcFailure, failed_precondition, not_found
from virt_core.rpc.tls import TlsFiles, require_peer_name
from virt_core.runtime.clock import FakeClock
from virt_protos.launcher.v1 import launcher_pb2
from virt_protos.node.v1 import node_pb2, node_pb2_grpc

TOKEN = "good"
OTHER_TOKEN = "good-too"
_USERS = {TOKEN: "bob", OTHER_TOKEN: "eve"}
SERVING_NAME = f"{names.SERVICE_API}.{names.INSTALL_NAMESPACE}.svc"
PROXY = FrontProxy(b"any", frozenset({"front-proxy-client"}))
PNG = b"\x89PNG\r\n\x1a\npicture"


class FakeClient:
    """The API server: VMs, VMIs and nodes by name, one good token, and a policy that a test sets."""

    def __init__(self) -> None:
        self.vms: dict[str, VirtualMachine] = {}
        self.vmis: dict[str, VirtualMachineInstance] = {}
        self.nodes: dict[str, Node] = {}
        self.allowed = True
        self.access: list[SubjectAccessReview] = []
        self.tokens: list[str] = []
        self.patches: list[tuple[str, str, Any, dict[str, str]]] = []
        self.patch_failures: list[ApiError] = []
        self.policies: list[MigrationPolicy] = []
        self.namespaces: dict[str, Namespace] = {"default": Namespace(metadata=ObjectMeta(name="default"))}
        self.jobs: list[tuple[VirtualMachineInstanceMigration, bool]] = []
        self.create_failures: list[ApiError] = []
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.pods: dict[str, Pod] = {}
        self.volumes: dict[str, DataVolume] = {}

    def _kept(self, cls: type[Any]) -> dict[str, Any]:
        kept: dict[type[Any], dict[str, Any]] = {
            Node: self.nodes,
            PersistentVolumeClaim: self.claims,
            Pod: self.pods,
            DataVolume: self.volumes,
            Namespace: self.namespaces,
            VirtualMachine: self.vms,
            VirtualMachineInstance: self.vmis,
        }
        return kept.get(cls, {})

    def get(self, cls: type[Any], name: str, namespace: str = "") -> Any:
        found = self._kept(cls)
        if name not in found:
            raise NotFound(404, "NotFound", f"{name} not found")
        return found[name]

    def patch(self, cls: type[Any], name: str, namespace: str, patch: Patch, *, subresource: str = "") -> Any:
        """Done for real, unless it is dry; the version of a merge patch must be ours."""
        old = self.get(cls, name, namespace)
        document = json.loads(patch.body())
        self.patches.append((f"{cls.__name__}/{name}", subresource, document, patch.query()))
        if self.patch_failures:
            raise self.patch_failures.pop(0)
        plain = to_plain(old)
        new = patched(plain, document) if isinstance(document, list) else merged(plain, document)
        version = (document.get("metadata") or {}).get("resourceVersion") if isinstance(document, dict) else None
        if version not in (None, old.metadata.resource_version):
            raise Conflict(409, "Conflict", "the object has been modified")
        if "dryRun" not in patch.query():
            stored = from_plain(new, cls)
            stored.metadata.resource_version = str(int(old.metadata.resource_version or "1") + 1)
            self._kept(cls)[name] = stored
        return old

    def list(self, cls: type[Any]) -> Any:
        assert cls is MigrationPolicy
        return SimpleNamespace(items=self.policies)

    def create(self, obj: Any, *, dry_run: bool = False) -> Any:
        if isinstance(obj, VirtualMachineInstanceMigration):
            if self.create_failures:
                raise self.create_failures.pop(0)
            self.jobs.append((obj, dry_run))
            obj.metadata.name = f"{obj.metadata.generate_name}x"
        if isinstance(obj, TokenReview):
            self.tokens.append(obj.spec.token)
            name = _USERS.get(obj.spec.token)
            user = UserInfo(username=name, groups=["devs"]) if name else None
            obj.status = TokenReviewStatus(authenticated=name is not None, user=user)
        elif isinstance(obj, SubjectAccessReview):
            self.access.append(obj)
            obj.status.allowed = self.allowed
        return obj

    def raw(self, method: str, path: str, *, timeout_s: float | None = None) -> bytes:
        return b'{"gitVersion":"v1"}'


def merged(document: Any, change: Any) -> Any:
    """RFC 7386."""
    if not isinstance(change, dict):
        return change
    result = dict(document) if isinstance(document, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def patched(document: Any, operations: list[dict[str, Any]]) -> Any:
    """As much of RFC 6902 as virt-api uses: members of maps."""
    result = copy.deepcopy(document)
    for operation in operations:
        *parents, last = operation["path"].split("/")[1:]
        place = result
        for part in parents:
            place = place[part]
        if operation["op"] == "test":
            if place.get(last) != operation["value"]:
                raise Invalid(422, "Invalid", "a test failed")
        elif operation["op"] == "remove":
            del place[last]
        else:
            place[last] = operation["value"]
    return result


class FakeNode(node_pb2_grpc.NodeServicer):
    """Echoes streams; notes commands. `greeting` is sent first; `fail` makes a stream end with an error, `displaced`
    with another client's coming. `full`: there is no place for one more stream."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, str]] = []
        self.openings: list[Any] = []
        self.greeting = b""
        self.fail = ""
        self.refuse = ""
        self.full = False
        self.agent = False
        self.mute = False
        self.move: launcher_pb2.Move | None = None
        self.forecasts: list[Any] = []

    def GetMove(self, request: Any, context: Any) -> Any:
        if self.move is None or request.job_uid != self.move.uid:
            raise not_found("no move has left this node")
        return node_pb2.GetMoveResponse(move=self.move)

    def GetNetwork(self, request: Any, context: Any) -> Any:
        self._command("network", request)
        station = node_pb2.NetworkStation(name="guest", state="stops", seen="arp 10.0.2.2: no answer")
        walk = node_pb2.NetworkWalk(
            name="default", binding="masquerade", state="Stopped", stops_at="guest", sentence="It is mute.",
            pod_addresses=["10.244.0.9"], guest_addresses=["10.0.2.2"], stations=[station],
        )  # fmt: skip
        return node_pb2.GetNetworkResponse(walks=[walk])

    def ForecastMove(self, request: Any, context: Any) -> Any:
        self.forecasts.append(request)
        if self.refuse:
            raise failed_precondition(self.refuse)
        return node_pb2.ForecastMoveResponse(
            convergence=node_pb2.CONVERGENCE_NO, message="will not converge", dirty_bytes_per_second=7, expected_ms=1500
        )

    def Hello(self, request: Any, context: Any) -> Any:
        require_peer_name(context, names.TLS_NAME_API)
        return node_pb2.HelloResponse(version=1, node_name="node1")

    def Pause(self, request: Any, context: Any) -> Any:
        return self._command("pause", request)

    def Unpause(self, request: Any, context: Any) -> Any:
        return self._command("unpause", request)

    def SoftReboot(self, request: Any, context: Any) -> Any:
        return self._command("softreboot", request)

    def Reset(self, request: Any, context: Any) -> Any:
        return self._command("reset", request)

    def Freeze(self, request: Any, context: Any) -> Any:
        return self._command(f"freeze {request.unfreeze_timeout_seconds}", request)

    def Unfreeze(self, request: Any, context: Any) -> Any:
        if not self.agent:
            raise failed_precondition("the guest agent is not connected")
        return self._command("unfreeze", request)

    def Screenshot(self, request: Any, context: Any) -> Any:
        return node_pb2.ScreenshotResponse(image=PNG)

    def GetUsers(self, request: Any, context: Any) -> Any:
        self._speak()
        return node_pb2.GetUsersResponse(users=[launcher_pb2.GuestUser(name="root", login_time=1.5)])

    def GetFilesystems(self, request: Any, context: Any) -> Any:
        self._speak()
        disk = launcher_pb2.GuestFilesystemDisk(serial="s1", bus_type="virtio")
        found = launcher_pb2.GuestFilesystem(
            disk_name="vda1", mount_point="/", type="ext4", used_bytes=1, total_bytes=2, disks=[disk]
        )
        return node_pb2.GetFilesystemsResponse(filesystems=[found])

    def GetSevInfo(self, request: Any, context: Any) -> Any:
        return launcher_pb2.GetSevInfoResponse(pdh="pdh", cert_chain="chain")

    def GetLaunchMeasurement(self, request: Any, context: Any) -> Any:
        return launcher_pb2.GetLaunchMeasurementResponse(
            measurement="m", api_major=1, api_minor=2, build_id=3, policy=5, loader_sha="sha"
        )

    def InjectLaunchSecret(self, request: Any, context: Any) -> Any:
        return self._command(f"inject {request.header} {request.secret}", request)

    def _speak(self) -> None:
        if self.mute:
            raise failed_precondition("the command guest-get-users has not been found")

    def _command(self, name: str, request: Any) -> Any:
        self.commands.append((name, request.vmi.uid))
        if self.refuse:
            raise failed_precondition(self.refuse)
        return node_pb2.VMIResponse()

    def GetGuestInfo(self, request: Any, context: Any) -> Any:
        info = launcher_pb2.GetGuestInfoResponse(
            agent_version="7.2", hostname="guest", os_info=launcher_pb2.OSInfo(name="Debian", version_id="12")
        )
        return node_pb2.GetGuestInfoResponse(info=info)

    def Stream(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        opening = next(requests)
        self.commands.append(("open", opening.open.vmi.uid))
        self.openings.append(opening.open)
        if self.refuse:
            raise failed_precondition(self.refuse)
        if self.full:
            raise RpcFailure(grpc.StatusCode.RESOURCE_EXHAUSTED, "all 4 places are taken")
        yield node_pb2.StreamResponse(opened=node_pb2.StreamOpened())
        if self.greeting:
            yield node_pb2.StreamResponse(data=self.greeting)
        for request in requests:
            if request.data == b"bye":
                return
            if request.data == b"displaced":
                raise RpcFailure(grpc.StatusCode.ABORTED, "another client has taken over")
            if request.data == b"moved":
                raise RpcFailure(grpc.StatusCode.UNAVAILABLE, names.STREAM_MOVED)
            if request.data == b"fail":
                raise failed_precondition("the device broke")
            yield node_pb2.StreamResponse(data=request.data)


@dataclass
class Settings:
    config: ClusterConfig


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
    apps: list[web.Application]
    #: What tests may change: the cluster's configuration.
    settings: Settings

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def sub(self, name: str, vmi: str = "vm1", *, resource: str = "virtualmachineinstances") -> str:
        return f"{self.url}/apis/subresources.kubevirt.io/v1/namespaces/default/{resource}/{vmi}/{name}"

    def tls(self, common_name: str = "", ca: CertAuthority | None = None) -> ssl.SSLContext:
        """Trusts the server; shows a client certificate if a name is given."""
        context = ssl.create_default_context(cadata=self.ca.pem.decode())
        if common_name:
            where = (ca or self.proxy_ca).issue(common_name).write(self.directory / f"client-{common_name}-{id(ca)}")
            context.load_cert_chain(where / "tls.crt", where / "tls.key")
        return context


def make_vmi(name: str = "vm1", *, phase: str = "Running", conditions: tuple[str, ...] = ()) -> VirtualMachineInstance:
    return VirtualMachineInstance(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", resource_version="1"),
        spec=VirtualMachineInstanceSpec(domain=DomainSpec()),
        status=VirtualMachineInstanceStatus(
            phase=phase,
            node_name="node1",
            conditions=[Condition(type=type_, status="True") for type_ in conditions],
            interfaces=[VirtualMachineInstanceNetworkInterface(name="default", ip_address="10.9.9.9")],
        ),
    )


def make_vm(name: str = "vm1", strategy: str = "Halted") -> VirtualMachine:
    return VirtualMachine(
        metadata=ObjectMeta(name=name, namespace="default", uid=f"vm-{name}", resource_version="1"),
        spec=VirtualMachineSpec(run_strategy=strategy, template=VirtualMachineInstanceTemplateSpec()),
    )


def make_node(name: str, port: int) -> Node:
    """As its virt-handler describes it."""
    told = {names.ANNOTATION_HANDLER_ADDRESS: f"127.0.0.1:{port}"}
    return Node(metadata=ObjectMeta(name=name, annotations=told))


@contextmanager
def running(directory: Path, behind: Connection | None = None) -> Iterator[Rig]:
    """`behind`: the API server that leads to importers; without one no uploads are taken."""
    ca, proxy_ca = CertAuthority("virtpod"), CertAuthority("front-proxy")
    handler_tls = ca.issue("virt-handler", names.tls_name_node("node1")).write(directory / "handler")
    node = FakeNode()
    grpc_server = serve_node(node, handler_tls)
    client = FakeClient()
    client.nodes["node1"] = make_node("node1", grpc_server.port)
    client.vmis["vm1"] = make_vmi()
    serving = ca.issue("virt-api", SERVING_NAME, "localhost", "127.0.0.1").write(directory / "serving")
    own = ca.issue("virt-api", names.TLS_NAME_API).write(directory / "api")
    (directory / "proxy-ca.crt").write_bytes(proxy_ca.pem)
    clock = FakeClock()
    apps: list[web.Application] = []
    settings = Settings(ClusterConfig(default_architecture="amd64", feature_gates=ALL_GATES))
    build = builder(client, TlsFiles(own), clock, apps, settings, behind)
    server = HttpServer("127.0.0.1", 0, ServingTls(TlsFiles(serving, ca=False), proxy_ca.pem), build)
    stop = threading.Event()
    thread = threading.Thread(target=server.run, args=(stop,), name="http")
    thread.start()
    try:
        assert server.started.wait(10)
        yield Rig(client, node, server.port, ca, proxy_ca, directory, clock, handler_tls, stop, apps, settings)
    finally:
        stop.set()
        thread.join(15)
        grpc_server.stop(0.5)
    assert not thread.is_alive()


def serve_node(node: FakeNode, tls: Path, port: int = 0) -> Any:
    return serve_tcp(f"127.0.0.1:{port}", [lambda s: node_pb2_grpc.add_NodeServicer_to_server(node, s)], TlsFiles(tls))


def builder(
    client: FakeClient,
    tls: TlsFiles,
    clock: FakeClock,
    apps: list[web.Application],
    settings: Settings,
    behind: Connection | None = None,
) -> Callable[[], Any]:
    def build() -> tuple[web.Application, Callable[[], Awaitable[None]]]:
        kube = Kube(client)
        nodes = Nodes(kube, tls, 1)
        forwarder = Forwarder(behind) if behind is not None else None
        services = app.Services(
            kube=kube,
            nodes=nodes,
            authenticator=Authenticator(kube, clock, lambda: PROXY),
            authorizer=Authorizer(kube),
            config=settings.config,
            live_config=lambda: settings.config,
            clock=clock,
            forwarder=forwarder,
            token_key=lambda: tls.current().key,
        )

        async def close() -> None:
            if forwarder is not None:
                await forwarder.close()
            await nodes.close()
            kube.close()

        apps.append(app.build(services))
        return apps[-1], close

    return build
