"""virt-api's application as it is served, before a fake API server and a fake node that speaks the real protocol."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from framework.certs import CertAuthority
from framework.supported import ALL_GATES
from functional.api import rig
from functional.api.rig import FakeClient, FakeNode, Settings, builder, make_vm, make_vmi, serve_node
from fuzz.loopback import Loopback, served

from virt_api.frontproxy import FrontProxy
from virt_core.apis import names
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.nodes import Node
from virt_core.kube.configvalues import ClusterConfig
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.clock import FakeClock


class Forgetful(FakeClient):
    """Keeps one VM and one VMI as they are and remembers no call, so that each input meets the same world."""

    def get(self, cls: type, name: str, namespace: str = "") -> object:
        self.vms["vm1"], self.vmis["vm1"] = make_vm(), make_vmi(conditions=("AgentConnected",))
        for seen in (self.access, self.tokens, self.patches):
            seen.clear()
        return super().get(cls, name, namespace)


class ForgetfulNode(FakeNode):
    def _command(self, name: str, request: object) -> object:
        self.commands.clear()
        self.openings.clear()
        return super()._command(name, request)


class Trusting(FrontProxy):
    """There is no TLS here: whoever sends is taken for the aggregation layer, and its headers say who asks."""

    def trusts(self, _certificate: object) -> bool:
        return True


@contextmanager
def virt_api(directory: Path) -> Iterator[Loopback]:
    ca = CertAuthority("virtpod")
    handler = ca.issue("virt-handler", names.tls_name_node("node1")).write(directory / "handler")
    node = serve_node(ForgetfulNode(), handler)
    client = Forgetful()
    address = {names.ANNOTATION_HANDLER_ADDRESS: f"127.0.0.1:{node.port}"}
    client.nodes["node1"] = Node(metadata=ObjectMeta(name="node1", annotations=address))
    settings = Settings(ClusterConfig(default_architecture="amd64", feature_gates=ALL_GATES))
    own = ca.issue("virt-api", names.TLS_NAME_API).write(directory / "api")
    believed, rig.PROXY = rig.PROXY, Trusting(b"any")
    try:
        with served(builder(client, TlsFiles(own), FakeClock(), [], settings)) as app:
            yield app
    finally:
        rig.PROXY = believed
        node.stop(0.5)
