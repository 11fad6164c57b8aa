"""The command line of every server of the control plane and of a node. Pure."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from .layout import API_PORT, DOMAIN, Layout, Node
from .storage import volume_dir

CONTROL_PLANE = ("etcd", "apiserver", "controller-manager", "scheduler", "dns", "storage")
NODE = ("containerd", "kubelet", "kube-proxy", "networks")
#: A test waits for the death of a node, so it is noticed sooner than by default (50 s); nodes renew every 4 s.
NODE_GRACE_S = 24
NODE_LEASE_S = 16
ROOT = Path(__file__).resolve().parents[2]
_ETCD_PORT = 2379
_ETCD_PEER_PORT = 2380


@dataclass(frozen=True, slots=True)
class Program:
    """A component: what to run and, for the control plane, the address and port it needs for itself."""

    name: str
    argv: tuple[str, ...]
    listens: tuple[tuple[str, int], ...] = ()


def control_plane(layout: Layout, programs: Path) -> tuple[Program, ...]:
    return (
        _etcd(layout, programs),
        _apiserver(layout, programs),
        _controller_manager(layout, programs),
        _scheduler(layout, programs),
        _dns(layout, programs),
        _storage(layout),
    )


def _etcd(layout: Layout, programs: Path) -> Program:
    clients = f"http://{layout.private_address}:{_ETCD_PORT}"
    peers = f"http://{layout.private_address}:{_ETCD_PEER_PORT}"
    argv = (
        str(programs / "etcd"),
        "--name=control",
        f"--data-dir={layout.etcd}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=control={peers}",
        "--unsafe-no-fsync",  # A test cluster does not outlive a power cut.
        "--auto-compaction-retention=10m",
        "--log-level=warn",
    )
    listens = ((layout.private_address, _ETCD_PORT), (layout.private_address, _ETCD_PEER_PORT))
    return Program("etcd", argv, listens)


def _apiserver(layout: Layout, programs: Path) -> Program:
    pki = layout.pki
    argv = (
        str(programs / "kube-apiserver"),
        f"--bind-address={layout.bridge_address}",
        f"--advertise-address={layout.bridge_address}",
        f"--secure-port={API_PORT}",
        f"--etcd-servers=http://{layout.private_address}:{_ETCD_PORT}",
        # What a test asks of an old state shall not depend on how long the cluster has run.
        "--etcd-compaction-interval=1m",
        f"--service-cluster-ip-range={','.join(layout.service_cidrs)}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/front-proxy-client.crt",
        f"--proxy-client-key-file={pki}/front-proxy-client.key",
        # The control plane has no kube-proxy: webhooks and aggregated APIs are reached at their Pods' addresses.
        "--enable-aggregator-routing=true",
        f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
        f"--service-account-key-file={pki}/service-account.pub",
        f"--service-account-signing-key-file={pki}/service-account.key",
    )
    return Program("apiserver", argv, ((layout.bridge_address, API_PORT),))


def _controller_manager(layout: Layout, programs: Path) -> Program:
    pki, config = layout.pki, layout.component_kubeconfig("controller-manager")
    argv = (
        str(programs / "kube-controller-manager"),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--bind-address={layout.private_address}",
        f"--root-ca-file={pki}/ca.crt",
        f"--service-account-private-key-file={pki}/service-account.key",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        f"--service-cluster-ip-range={','.join(layout.service_cidrs)}",
        "--use-service-account-credentials=true",
        # There is one of it: after a kill -9 it need not wait for its own lease to run out.
        "--leader-elect=false",
        f"--node-monitor-grace-period={NODE_GRACE_S}s",
        "--node-monitor-period=2s",
    )
    return Program("controller-manager", argv, ((layout.private_address, 10257),))


def _scheduler(layout: Layout, programs: Path) -> Program:
    config = layout.component_kubeconfig("scheduler")
    argv = (
        str(programs / "kube-scheduler"),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--bind-address={layout.private_address}",
        "--leader-elect=false",
    )
    return Program("scheduler", argv, ((layout.private_address, 10259),))


def _dns(layout: Layout, programs: Path) -> Program:
    argv = (str(programs / "coredns"), "-conf", str(layout.state / "Corefile"))
    return Program("dns", argv, ((layout.dns_address, 53),))


def _storage(layout: Layout) -> Program:
    """virt-local's provisioner and snapshotter, from the tree that started the cluster."""
    config, place = layout.component_kubeconfig("storage"), volume_dir(layout)
    argv = (sys.executable, "-m", "virt_local.main", "storage", f"--kubeconfig={config}", f"--volume-dir={place}")
    return Program("storage", argv)


def node(layout: Layout, machine: Node, programs: Path) -> tuple[Program, ...]:
    """As they are called inside the node, where the standard paths are its own."""
    home = layout.node_dir(machine)
    kubelet = (
        str(programs / "kubelet"),
        f"--config={home}/kubelet.yaml",
        f"--kubeconfig={home}/kubelet.kubeconfig",
        f"--hostname-override={machine.name}",
        f"--node-ip={machine.address}" + (f",{machine.address_v6}" if layout.ipv6 else ""),
    )
    proxy = (
        str(programs / "kube-proxy"),
        f"--kubeconfig={layout.component_kubeconfig('kube-proxy')}",
        f"--hostname-override={machine.name}",
        "--proxy-mode=nftables",
        f"--cluster-cidr={','.join(layout.pod_cidrs)}",
        # These are switches of the whole machine.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
        "--oom-score-adj=0",
    )
    return (
        Program("containerd", (str(programs / "containerd"), f"--config={home}/containerd.toml")),
        Program("kubelet", kubelet),
        Program("kube-proxy", proxy),
        Program("networks", _networks(layout, machine)),
    )


def _networks(layout: Layout, machine: Node) -> tuple[str, ...]:
    """A program of ours, from the tree that started the cluster: a node has the machine's files."""
    config = str(layout.component_kubeconfig("networks"))
    return ("env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.cluster", "networks", config, machine.name)
