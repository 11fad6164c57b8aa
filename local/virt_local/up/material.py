"""Everything secret that an instance needs before its first process starts, made once and kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from virt_core.apis import names
from virt_local.up import pki
from virt_local.up.instance import Instance, Node
from virt_local.up.kubeconfig import Automation, Credentials, write_kubeconfig
from virt_local.up.pki import CLIENT, SERVER, Authority, Leaf

NAMESPACE = names.INSTALL_NAMESPACE


@dataclass(frozen=True, slots=True)
class Material:
    """Where the parts lie."""

    cluster_ca: Authority
    front_proxy_ca: Authority
    virtpod_ca: Authority
    signing_key: Path
    api_cert: Path
    api_key: Path
    front_proxy_cert: Path
    front_proxy_key: Path
    node_client_cert: Path
    node_client_key: Path


def make_material(instance: Instance) -> Material:
    for directory in (instance.pki_dir, instance.kubeconfig_dir, instance.tls_dir):
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory = instance.pki_dir
    cluster = pki.ensure_authority(directory, "ca", "virt-local cluster CA")
    front_proxy = pki.ensure_authority(directory, "front-proxy-ca", "virt-local front-proxy CA")
    virtpod = pki.ensure_authority(directory, names.CERTS_CA, "virtpod component CA")
    api = _pair(cluster, directory, "apiserver", _api_leaf(instance))
    proxy = _pair(front_proxy, directory, "front-proxy-client", Leaf("front-proxy-client"))
    node_client = Leaf("kube-apiserver-kubelet-client", ("system:masters",))
    to_nodes = _pair(cluster, directory, "apiserver-node-client", node_client)
    material = Material(
        cluster_ca=cluster,
        front_proxy_ca=front_proxy,
        virtpod_ca=virtpod,
        signing_key=pki.ensure_signing_key(directory),
        api_cert=api[0],
        api_key=api[1],
        front_proxy_cert=proxy[0],
        front_proxy_key=proxy[1],
        node_client_cert=to_nodes[0],
        node_client_key=to_nodes[1],
    )
    _component_certificates(instance, material)
    _people(instance, material)
    return material


def _api_leaf(instance: Instance) -> Leaf:
    hosts = ("localhost", "127.0.0.1", instance.bridge_address, "kubernetes.default", "kubernetes.default.svc")
    return Leaf("kube-apiserver", names=hosts, usage=(SERVER,))


def _component_certificates(instance: Instance, material: Material) -> None:
    """One role for each certificate, so that none of them opens another one's door."""
    virtpod = material.virtpod_ca
    role = names.tls_name_api(NAMESPACE)
    client = Leaf(role, names=(role,), usage=(CLIENT,))
    pki.ensure_tls_dir(instance.tls_dir / "virt-api", virtpod, client)
    hosts = (f"virt-api.{NAMESPACE}.svc", "localhost", "127.0.0.1")
    serving = Leaf(f"virt-api.{NAMESPACE}.svc", names=hosts, usage=(SERVER,))
    pki.ensure_tls_dir(instance.tls_dir / names.CERTS_API_SERVING, virtpod, serving)
    for node in instance.nodes:
        own = Leaf(names.SA_HANDLER, names=(names.tls_name_node(node.name, NAMESPACE),), usage=(SERVER, CLIENT))
        pki.ensure_tls_dir(handler_tls_dir(instance, node), virtpod, own)
        agent = Leaf(f"system:node:{node.name}", ("system:nodes",), (node.name, node.address), (SERVER,))
        pki.ensure_tls_dir(node_tls_dir(instance, node), material.cluster_ca, agent)


def _people(instance: Instance, material: Material) -> None:
    """The users that come with a client certificate. The components' accounts get tokens once the API is up."""
    ca, directory = material.cluster_ca, instance.pki_dir / "users"
    users = {
        "admin": (Leaf("kubernetes-admin", ("system:masters",)), instance.server),
        "controllers": (Leaf("system:kube-controller-manager"), instance.server),
    }
    for node in instance.nodes:
        users[f"node-{node.name}"] = (Leaf(f"system:node:{node.name}", ("system:nodes",)), instance.node_server)
    for name, (leaf, server) in users.items():
        cert, key = _pair(ca, directory, name, leaf)
        path = instance.kubeconfig_dir / f"{name}.yaml"
        credentials = Credentials(cert=cert, key=key)
        write_kubeconfig(
            path,
            server=server,
            ca_pem=ca.pem,
            user=leaf.common_name,
            credentials=credentials,
            automation=Automation(instance.automation_address, material.virtpod_ca.pem),
        )


def _pair(authority: Authority, directory: Path, name: str, leaf: Leaf) -> tuple[Path, Path]:
    cert, key = directory / f"{name}.crt", directory / f"{name}.key"
    pki.ensure_leaf(authority, cert, key, leaf)
    return cert, key


def handler_tls_dir(instance: Instance, node: Node) -> Path:
    return instance.tls_dir / f"virt-handler-{node.name}"


def node_tls_dir(instance: Instance, node: Node) -> Path:
    return instance.tls_dir / f"node-{node.name}"
