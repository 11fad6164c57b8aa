"""The configuration files of a node and of the name server, as text. Pure: nothing here looks at the machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .commands import NODE_LEASE_S
from .layout import API_PORT, DOMAIN, Layout, Node

PAUSE_IMAGE = "virtpod.internal/pause:v1"
POD_BRIDGE = "cni0"
CNI_DIRS = ("/usr/lib/cni", "/opt/cni/bin")


@dataclass(frozen=True, slots=True)
class Host:
    """What the files need to know about the machine."""

    programs: Path
    may_raise_priority: bool = True  # CAP_SYS_RESOURCE


def containerd(node_dir: Path, host: Host) -> str:
    """TOML. Paths are the standard ones, which the node's mount namespace makes its own."""
    directories = json.dumps(list(CNI_DIRS))
    restrict = json.dumps(not host.may_raise_priority)
    return f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins.'io.containerd.cri.v1.runtime']
  # Whoever lacks CAP_SYS_RESOURCE may not lower oom_score_adj, and runc fails when told to.
  restrict_oom_score_adj = {restrict}
  enable_selinux = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = {directories}
    conf_dir = "/etc/cni/net.d"
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "{host.programs}/runc"
        SystemdCgroup = false

[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{PAUSE_IMAGE}"
  [plugins.'io.containerd.cri.v1.images'.registry]
    config_path = "{node_dir}/registries"
"""


def kubelet(layout: Layout, node: Node) -> dict[str, Any]:
    home = layout.node_dir(node)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{layout.pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{home}/kubelet-serving.crt",
        "tlsPrivateKeyFile": f"{home}/kubelet-serving.key",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDomain": DOMAIN,
        "clusterDNS": [layout.dns_address],
        "resolvConf": f"{home}/resolv.conf",
        # Works on hosts of all three kinds: cgroup v1, hybrid and v2.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.node_cgroup(node)}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "nodeLeaseDurationSeconds": NODE_LEASE_S,
        # The fault tests kill the same container again and again; the usual patience of minutes is not what they test.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
        # Images are imported and cannot be pulled again; a nearly full disk is not the tests' business.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "nodefs.inodesFree": "1%",
            "imagefs.available": "1%",
            "imagefs.inodesFree": "1%",
        },
    }


def cni(layout: Layout, node: Node) -> dict[str, Any]:
    """A bridge on each node; the routes between the nodes are made once, with the nodes."""
    cidrs = (node.pod_cidr, node.pod_cidr_v6) if layout.ipv6 else (node.pod_cidr,)
    bridge = {
        "type": "bridge",
        "bridge": POD_BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": "/var/lib/cni/networks",
            "ranges": [[{"subnet": cidr}] for cidr in cidrs],
            "routes": [{"dst": "::/0" if ":" in cidr else "0.0.0.0/0"} for cidr in cidrs],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}


def corefile(layout: Layout, upstream: str) -> str:
    """Names of the cluster from the API; all others from where this machine asks. Without such a place: none."""
    forward = f"    forward . {upstream}\n" if upstream else ""
    return f""".:53 {{
    bind {layout.dns_address}
    errors
    kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig {layout.component_kubeconfig("dns")}
        fallthrough in-addr.arpa ip6.arpa
    }}
{forward}    cache 10
}}
"""


def kubeconfig(layout: Layout, *, user: str, ca: str, certificate: str, key: str) -> dict[str, Any]:
    """All material inline (base64), so that the file can be copied elsewhere."""
    cluster = {"server": f"https://{layout.bridge_address}:{API_PORT}", "certificate-authority-data": ca}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": layout.name, "cluster": cluster}],
        "users": [{"name": user, "user": {"client-certificate-data": certificate, "client-key-data": key}}],
        "contexts": [{"name": layout.name, "context": {"cluster": layout.name, "user": user}}],
        "current-context": layout.name,
    }


def resolv_conf(stub: str, real: str) -> str:
    """The machine's own, for Pods. A name server on loopback (a local cache) is none that a Pod can reach, so the
    servers behind it are taken; `real` is what systemd-resolved knows about them."""
    for text in (stub, real):
        servers = nameservers(text)
        if servers:
            keep = [line for line in text.splitlines() if line.split()[:1] in (["search"], ["options"])]
            return "\n".join([*(f"nameserver {server}" for server in servers), *keep]) + "\n"
    return "# this machine has no name server that a Pod could reach\n"


def nameservers(text: str) -> list[str]:
    words = [line.split() for line in text.splitlines()]
    found = [parts[1] for parts in words if len(parts) > 1 and parts[0] == "nameserver"]
    return [server for server in found if not server.startswith("127.") and server != "::1"]
