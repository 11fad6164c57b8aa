"""The components' accounts: a token for each, renewed long before it ends; virt-handler's is bound to its node.

A token that names its node lets the API refuse a handler that touches another node.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import msgspec

from virt_core.apis.nodes import Node
from virt_core.apis.registry import resource_by_kind
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import ApiError
from virt_core.runtime.logs import get_logger
from virt_local.up.instance import Instance
from virt_local.up.kubeconfig import Credentials, write_kubeconfig
from virt_local.up.material import NAMESPACE, Material
from virt_local.up.pki import write_secret

log = get_logger("virt-local.up")

_SECONDS = 30 * 24 * 3600
_RENEW_EVERY_S = 24 * 3600.0
_LOOK_EVERY_S = 10.0


@dataclass
class Accounts:
    """Writes kubeconfigs and tokens for the components."""

    instance: Instance
    material: Material
    client: KubeClient
    _bound: dict[str, str] = field(default_factory=dict)  # node → uid that its handler's token names

    def issue(self, account: str) -> None:
        """A component that runs once."""
        self._write(account, account, self.instance.server, None)

    def issue_for_node(self, account: str, node: str) -> None:
        uid = self.client.get(Node, node).metadata.uid
        ref = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
        self._write(account, f"{account}-{node}", self.instance.node_server, ref)
        self._bound[node] = uid

    def renew_loop(self, stop: threading.Event) -> None:
        """Renews daily, and soon for a node whose object was made anew: its handler's token died with the old one."""
        waited = 0.0
        while not stop.wait(_LOOK_EVERY_S):
            waited += _LOOK_EVERY_S
            daily = waited >= _RENEW_EVERY_S
            waited = 0.0 if daily else waited
            try:
                self._renew(everything=daily)
            except ApiError as err:
                log.debug("tokens could not be renewed now", error=str(err))

    def _renew(self, *, everything: bool) -> None:
        if everything:
            self.issue("virt-api")
            self.issue("virt-controller")
        for node, uid in list(self._bound.items()):
            if everything or self.client.get(Node, node).metadata.uid != uid:
                self.issue_for_node("virt-handler", node)

    def _write(self, account: str, name: str, server: str, ref: dict[str, str] | None) -> None:
        token_file = self.instance.kubeconfig_dir / f"{name}.token"
        write_secret(token_file, self._token(account, ref).encode())
        write_kubeconfig(
            self.instance.kubeconfig_dir / f"{name}.yaml",
            server=server,
            ca_pem=self.material.cluster_ca.pem,
            user=f"system:serviceaccount:{NAMESPACE}:{account}",
            credentials=Credentials(token_file=token_file),
        )

    def _token(self, account: str, ref: dict[str, str] | None) -> str:
        spec: dict[str, object] = {"expirationSeconds": _SECONDS}
        if ref is not None:
            spec["boundObjectRef"] = ref
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"{resource_by_kind('ServiceAccount').path(NAMESPACE)}/{account}/token"
        answer = msgspec.json.decode(self.client.raw("POST", path, body=msgspec.json.encode(request)))
        return str(answer["status"]["token"])
