"""Keys, certificates and kubeconfigs of a cluster: an authority for the cluster, one for the front proxy, one role in
each certificate. What exists and still fits is kept, so that a second start changes nothing."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from virt_local.up.pki import (
    CLIENT,
    SERVER,
    Authority,
    Leaf,
    ensure_authority,
    ensure_leaf,
    ensure_signing_key,
    write_public,
    write_secret,
)

from . import configs, networks, storage
from .layout import DOMAIN, Layout, Node

#: Component → who it is; the default roles of Kubernetes know these users.
CLIENTS = {
    "admin": Leaf("virtpod-admin", ("system:masters",)),
    "controller-manager": Leaf("system:kube-controller-manager"),
    "scheduler": Leaf("system:kube-scheduler"),
    "kube-proxy": Leaf("system:kube-proxy"),
    "dns": Leaf("virtpod:dns"),
    "networks": Leaf(networks.USER),
    "storage": Leaf(storage.USER),
}


def establish(layout: Layout) -> None:
    ca = ensure_authority(layout.pki, "ca", f"{layout.name}-cluster-ca")
    front = ensure_authority(layout.pki, "front-proxy-ca", f"{layout.name}-front-proxy-ca")
    _pair(ca, layout.pki / "apiserver", api_server(layout))
    _pair(ca, layout.pki / "apiserver-kubelet", Leaf("apiserver-kubelet-client", ("system:masters",)))
    _pair(front, layout.pki / "front-proxy-client", Leaf("front-proxy-client"))
    _service_account_keys(layout.pki)
    for component, leaf in CLIENTS.items():
        _client(layout, ca, component, leaf, layout.component_kubeconfig(component))
    layout.kubeconfig.unlink(missing_ok=True)
    write_secret(layout.kubeconfig, layout.component_kubeconfig("admin").read_bytes())
    for node in layout.nodes:
        _node(layout, ca, node)


def api_server(layout: Layout) -> Leaf:
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{DOMAIN}")
    names = (*service, layout.bridge_address, layout.api_service_address)
    return Leaf("kube-apiserver", (), names, (SERVER,))


def kubelet_server(layout: Layout, node: Node) -> Leaf:
    six = (node.address_v6,) if layout.ipv6 else ()
    return Leaf(f"system:node:{node.name}", ("system:nodes",), (node.name, node.address, *six), (SERVER,))


def _node(layout: Layout, ca: Authority, node: Node) -> None:
    home = layout.node_dir(node)
    _pair(ca, home / "kubelet-serving", kubelet_server(layout, node))
    client = Leaf(f"system:node:{node.name}", ("system:nodes",), (), (CLIENT,))
    _client(layout, ca, f"kubelet-{node.name}", client, home / "kubelet.kubeconfig")


def _client(layout: Layout, ca: Authority, component: str, leaf: Leaf, path: Path) -> None:
    pair = layout.pki / f"client-{component}"
    _pair(ca, pair, leaf)
    config = configs.kubeconfig(
        layout,
        user=leaf.common_name,
        ca=_base64(ca.pem),
        certificate=_base64(pair.with_suffix(".crt").read_bytes()),
        key=_base64(pair.with_suffix(".key").read_bytes()),
    )
    write_secret(path, (json.dumps(config, indent=2) + "\n").encode())


def _pair(authority: Authority, stem: Path, leaf: Leaf) -> None:
    ensure_leaf(authority, stem.with_suffix(".crt"), stem.with_suffix(".key"), leaf)


def _service_account_keys(directory: Path) -> None:
    """The API server wants the public half in a file of its own."""
    private = serialization.load_pem_private_key(ensure_signing_key(directory).read_bytes(), password=None)
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    write_public(directory / "service-account.pub", public)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
