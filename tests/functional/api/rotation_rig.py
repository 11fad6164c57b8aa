"""The real virt-controller and virt-api as processes, and a node service whose certificate comes from a Secret, before
a fake API server; and clients that trust as an API server would: what was injected, and a little late."""

from __future__ import annotations

import base64
import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from framework.certs import CertAuthority
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running
from functional.api.rig import FakeNode, make_vmi

from virt_core import manifests
from virt_core.apis import names
from virt_core.apis.registry import plain_object
from virt_core.rpc.server import RpcServer, serve_tcp
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.clock import SystemClock
from virt_handler.service.node_certificate import NodeCertificate
from virt_protos.node.v1 import node_pb2_grpc

SERVICE = "virt-api.virtpod.svc"
OLD_APISERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha3.subresources.kubevirt.io"
APISERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1.subresources.kubevirt.io"
PROXY_CONFIG = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
VMI = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm1"
SECRETS = "/api/v1/namespaces/virtpod/secrets"
HANDLER = names.service_account_user(names.SA_HANDLER)
#: An API server hears of a new bundle a moment after it was written.
LATE_S = 0.3


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def answer(method: str, path: str, _query: dict[str, str], body: Any) -> tuple[int, Any, dict[str, str]] | None:
    """Everybody with the good token is bob, and bob may do everything; there is one VMI, which no controller sees."""
    if method == "GET" and path == VMI:
        return 200, plain_object(make_vmi()), {}
    if method == "POST" and path.endswith("/tokenreviews"):
        good = body["spec"]["token"] == "good"
        return 201, {**body, "status": {"authenticated": good, "user": {"username": "bob"}}}, {}
    if method == "POST" and path.endswith("/subjectaccessreviews"):
        return 201, {**body, "status": {"allowed": True}}, {}
    if method == "POST" and path.endswith("/certificatesigningrequests"):
        # Only an API server knows who asks.
        body["spec"] |= {"username": HANDLER, "extra": {names.EXTRA_NODE_NAME: ["node1"]}}
    return (200, {"gitVersion": "v1"}, {}) if path == "/version" else None


class Trust:
    """What an API server trusts when it calls virt-api: the injected bundle, as it was a moment ago."""

    def __init__(self, kube: FakeKube) -> None:
        self._kube = kube
        self._seen: list[tuple[float, bytes]] = []

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(0.03):
            bundle = self._bundle()
            if bundle and (not self._seen or self._seen[-1][1] != bundle):
                self._seen.append((time.monotonic(), bundle))

    def _bundle(self) -> bytes:
        injected = {self._kube.objects[path]["spec"].get("caBundle", "") for path in (APISERVICE, OLD_APISERVICE)}
        return base64.b64decode(injected.pop()) if len(injected) == 1 else b""

    def history(self) -> list[list[bytes]]:
        """The bundles so far, each as its certificates."""
        mark = b"-----END CERTIFICATE-----\n"
        return [[part for part in bundle.split(mark) if part] for _, bundle in list(self._seen)]

    def pem(self) -> bytes:
        seen, moment = list(self._seen), time.monotonic() - LATE_S
        return next((bundle for when, bundle in reversed(seen) if when <= moment), seen[0][1])

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.pem().decode())


class Rig:
    def __init__(self, directory: Path, kube: FakeKube) -> None:
        self.directory, self.kube, self.trust, self.node = directory, kube, Trust(kube), FakeNode()
        self.proxy_ca = CertAuthority("front-proxy")
        self.port, self.automation_port = free_port(), free_port()
        kube.on_request = answer
        for document in manifests.load("apiservice.yaml"):
            if document["kind"] != "Service":
                kube.put(_path(document), without_bundle(document))
        self.front_proxy(self.proxy_ca)

    def front_proxy(self, ca: CertAuthority) -> None:
        data = {"requestheader-client-ca-file": ca.pem.decode(), "requestheader-allowed-names": '["aggregator"]'}
        self.kube.put(PROXY_CONFIG, {"data": data})

    def api_server(self) -> ssl.SSLContext:
        """As the API server's aggregation layer comes to virt-api."""
        context = self.trust.context()
        where = self.directory / "aggregator"
        if not where.exists():
            self.proxy_ca.issue("aggregator").write(where)
        context.load_cert_chain(where / "tls.crt", where / "tls.key")
        return context

    def kubeconfig(self) -> str:
        path = self.directory / "kubeconfig"
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{self.kube.port}"}}],
            "users": [{"name": "u", "user": {}}],
        }
        path.write_text(json.dumps(config))
        return str(path)

    @contextmanager
    def controller(self, *flags: str) -> Iterator[None]:
        fixed = ["--launcher-image=i", f"--health-listen=127.0.0.1:{free_port()}", "--certificates=builtin"]
        with self._process("virt_controller", *fixed, *flags):
            yield

    @contextmanager
    def virt_api(self) -> Iterator[None]:
        with self._process(
            "virt_api",
            f"--listen=127.0.0.1:{self.port}",
            f"--automation-listen=127.0.0.1:{self.automation_port}",
            f"--serving-tls-dir={self.directory}/serving",
            "--serving-tls-secret=virt-api-serving",
            f"--tls-dir={self.directory}/client",
            "--tls-secret=virt-api-client",
        ):
            yield

    @contextmanager
    def _process(self, package: str, *flags: str) -> Iterator[None]:
        code = f"from {package}.main import main; main()"
        with (self.directory / f"{package}.log").open("wb") as log:
            command = [sys.executable, "-c", code, f"--kubeconfig={self.kubeconfig()}", *flags]
            process = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                yield
                process.send_signal(signal.SIGTERM)
                assert process.wait(25) == 0, self.log(package)
            finally:
                process.kill()
                process.wait(5)

    def log(self, package: str) -> str:
        return (self.directory / f"{package}.log").read_text()

    def serve_node(self, stack: ExitStack) -> None:
        """As virt-handler does it: it asks for its certificate, and the server reads the files for each connection."""
        directory = self.directory / "handler"
        own = NodeCertificate(self.kube.client(), "virtpod", "node1", directory, SystemClock())
        stack.enter_context(running(own.watch, own.run))
        assert eventually(own.is_there, within_s=30)
        register = lambda server: node_pb2_grpc.add_NodeServicer_to_server(self.node, server)  # noqa: E731
        server = serve_tcp("127.0.0.1:0", [register], TlsFiles(directory))
        stack.callback(stop_server, server)
        annotations = {names.ANNOTATION_HANDLER_ADDRESS: f"127.0.0.1:{server.port}"}
        self.kube.put("/api/v1/nodes/node1", {"metadata": {"annotations": annotations}})

    def get(self, path: str, context: ssl.SSLContext, headers: dict[str, str] | None = None) -> tuple[int, str]:
        with connected(self.port, context) as connection:
            connection.request("GET", path, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.read().decode()


def stop_server(server: RpcServer) -> None:
    server.stop(0.5)


def _path(document: dict[str, Any]) -> str:
    return f"/apis/{document['apiVersion']}/apiservices/{document['metadata']['name']}"


def without_bundle(node: Any) -> Any:
    """As the chart installs it."""
    if isinstance(node, dict):
        return {key: without_bundle(value) for key, value in node.items() if key != "caBundle"}
    return [without_bundle(item) for item in node] if isinstance(node, list) else node


@contextmanager
def connected(port: int, context: ssl.SSLContext, name: str = SERVICE) -> Iterator[HTTPConnection]:
    """A TLS connection to virt-api under the name of its Service."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname=name) as s,
    ):
        connection = HTTPConnection(name, timeout=10)
        connection.sock = s
        yield connection


@contextmanager
def rotation_rig(directory: Path) -> Iterator[Rig]:
    with fake_kube() as kube:
        rig = Rig(directory, kube)
        with running(rig.trust.run):
            yield rig
