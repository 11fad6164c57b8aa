"""`make cluster`: programs, certificates, network, control plane, nodes, images, in that order, one line for each."""

from __future__ import annotations

import fcntl
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from virt_local.storage.objects import snapshot_class, snapshot_definitions
from virt_local.up import forwarding, links
from virt_local.up.manifests import network_definitions
from virt_local.up.network import forward_policy
from virt_local.up.pki import write_public
from virt_local.up.progress import Progress

from . import (
    binaries,
    cgroups,
    commands,
    configs,
    machine,
    network,
    networks,
    pki,
    preflight,
    storage,
    supervise,
    tunables,
)
from .cluster import Cluster
from .errors import ClusterError
from .images import write_single
from .layout import STATE_ROOT, Layout, claimed_octets, load, make_layout, save
from .loading import project_images

_READY_S = 120.0
#: What the name server may look at.
_DNS_ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "virtpod:dns"}
rules:
- {apiGroups: [""], resources: [services, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "virtpod:dns"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "virtpod:dns"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "virtpod:dns"}]
"""


def start(name: str, nodes: int | None, progress: Progress, *, images: bool = True) -> Cluster:
    preflight.check_root()
    preflight.check_tools()
    running = _running(name, nodes)
    if running is not None:
        progress.line(f"The cluster {name} runs already, with {counted(len(running.nodes))}.")
        return running
    programs = binaries.ensure(progress.step)
    layout = _claim(name, nodes or 2, programs)
    _prepare(layout, programs, progress)
    supervise.launch(layout, programs, supervise.CONTROL)
    cluster = Cluster.attach(name)
    _until_served(cluster)
    progress.step(f"control plane on {layout.bridge_address} ({', '.join(commands.CONTROL_PLANE)})")
    _start_nodes(cluster, programs, progress)
    _add_storage(cluster)
    _add_networks(cluster)
    if images:
        load_project(cluster, progress)
    return cluster


def _add_networks(cluster: Cluster) -> None:
    """What an administrator applies who installs Multus: the kind, and the rights of who acts on it."""
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(network_definitions()))
    cluster.kubectl("apply", "-f", "-", stdin=networks.ROLE)


def _add_storage(cluster: Cluster) -> None:
    for node in cluster.layout.nodes:
        for path in storage.directories(cluster.layout, node):
            Path(path).mkdir(parents=True)
    things = {"apiVersion": "v1", "kind": "List", "items": storage.objects(cluster.layout)}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(things))
    cluster.kubectl("apply", "-f", "-", stdin=storage.ROLE)
    kinds = [each["metadata"]["name"] for each in snapshot_definitions()]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", *kinds)
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(snapshot_class()))


def _running(name: str, nodes: int | None) -> Cluster | None:
    """Nothing: there is none. A cluster of which only a part lives is neither, and only `down` gets rid of it."""
    layout = load(name)
    if layout is None:
        return None
    living = supervise.supervisors(layout).living()
    missing = [role for role in (supervise.CONTROL, *(node.name for node in layout.nodes)) if role not in living]
    if missing:
        raise ClusterError(
            f"An earlier cluster {name!r} is half dead (nothing keeps {', '.join(missing)} running): "
            "`make cluster-down`, then start again."
        )
    if nodes is not None and nodes != layout.node_count:
        raise ClusterError(
            f"The cluster {name!r} runs already, with {counted(layout.node_count)} and not {nodes}: "
            "`make cluster-down` first to change that."
        )
    return Cluster.attach(name)


def _claim(name: str, nodes: int, programs: Path) -> Layout:
    """One start at a time, whatever the cluster: or two would choose the same network."""
    STATE_ROOT.mkdir(parents=True, exist_ok=True)
    directory = os.open(STATE_ROOT, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        octet = network.choose_octet(name, links.routes(), claimed_octets())
        layout = make_layout(name, octet, nodes, ipv6=forwarding.has_ipv6())
        preflight.check_ports(commands.control_plane(layout, programs))
        save(layout)
    finally:
        os.close(directory)
    return layout


def counted(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def _prepare(layout: Layout, programs: Path, progress: Progress) -> None:
    """Everything that stands still, so that processes find it when they start."""
    write_public(layout.state / "programs", f"{programs}\n".encode())
    tunables.remember(layout.root / ".tunables.json")
    machine.make_mount_points(layout.root / ".mount-points")
    pki.establish(layout)
    _write_configs(layout, programs)
    for node in layout.nodes:
        cgroups.make(layout.node_cgroup(node))
    progress.step(f"certificates and settings in {layout.state}")
    network.set_up(layout)
    progress.step(f"network {layout.network}" + (f" and {layout.network_v6}" if layout.ipv6 else ""))
    if forward_policy() == "drop":
        accept = "; ".join(f"iptables -I FORWARD -{way} {layout.bridge} -j ACCEPT" for way in "io")
        progress.line(
            f"Note: a firewall here drops forwarded packets, so Pods do not reach the outside; allow: {accept}"
        )


def _write_configs(layout: Layout, programs: Path) -> None:
    host = configs.Host(programs, preflight.may_raise_priority())
    resolv = configs.resolv_conf(_text("/etc/resolv.conf"), _text("/run/systemd/resolve/resolv.conf"))
    write_public(layout.state / "Corefile", configs.corefile(layout, " ".join(configs.nameservers(resolv))).encode())
    for node in layout.nodes:
        machine.make_home(layout, node)
        home = layout.node_dir(node)
        write_public(home / "containerd.toml", configs.containerd(home, host).encode())
        write_public(home / "kubelet.yaml", json.dumps(configs.kubelet(layout, node), indent=2).encode())
        write_public(home / "net.d" / "10-pods.conflist", json.dumps(configs.cni(layout, node), indent=2).encode())
        write_public(home / "resolv.conf", resolv.encode())


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _until_served(cluster: Cluster) -> None:
    """The server listens before it is ready; kubectl waits for neither."""
    deadline = time.monotonic() + _READY_S
    while cluster.try_kubectl("get", "--raw", "/readyz").returncode != 0:
        if time.monotonic() > deadline:
            log = cluster.layout.log("apiserver")
            raise ClusterError(f"The API server was not ready within {_READY_S:.0f} s; {log} may say why.")
        time.sleep(0.2)
    cluster.kubectl("apply", "-f", "-", stdin=_DNS_ROLE)


def _start_nodes(cluster: Cluster, programs: Path, progress: Progress) -> None:
    layout = cluster.layout
    with ThreadPoolExecutor(layout.node_count) as pool:
        list(pool.map(lambda node: supervise.launch(layout, programs, node.name), layout.nodes))
    pause = layout.state / "pause.tar"
    write_single(pause, configs.PAUSE_IMAGE, {"pause": (programs / "pause").read_bytes()}, ["/pause"])
    cluster.load(pause)
    progress.step(f"{counted(layout.node_count)} started, the sandbox image imported")
    cluster.wait_ready(cluster.nodes, within_s=_READY_S)
    for node in layout.nodes:
        cidrs = [node.pod_cidr, node.pod_cidr_v6] if layout.ipv6 else [node.pod_cidr]
        patch = json.dumps({"spec": {"podCIDR": cidrs[0], "podCIDRs": cidrs}})
        cluster.kubectl("patch", "node", node.name, "-p", patch)
    progress.step(f"{', '.join(cluster.nodes)} Ready")


def load_project(cluster: Cluster, progress: Progress) -> None:
    """What has been built so far; `make images` may come later and then loads its own."""
    for path, name in project_images():
        progress.step(f"importing {name or path.name}")
        cluster.load(path, name=name)
