"""What the command line of `virt-local node` says."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from virt_local.node.assemble import CNI_DIRS, NodeSettings
from virt_local.node.capacity import Machine
from virt_local.node.images.host import HOST_IMAGE


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """`root` is the node's own directory, `data_dir` that of the whole instance, which no container may ever see."""

    name: str
    kubeconfig: str
    root: Path
    image_dir: Path
    address: str
    pod_cidr: str
    tls_cert: str
    tls_key: str
    client_ca: str
    instance: str = "vp"
    port: int = 10250
    pod_cidr_v6: str = ""
    cluster_dns: tuple[str, ...] = ()
    data_dir: Path | None = None
    node_info_dir: Path | None = None
    host_image: str = HOST_IMAGE
    cgroup_parent: str = ""
    cni_dirs: tuple[str, ...] = CNI_DIRS
    runc: str = "runc"
    conmon: str = "conmon"
    #: The common name of the only client that may use the agent's endpoint.
    api_client_name: str = "kube-apiserver-kubelet-client"

    @property
    def pod_cidrs(self) -> tuple[str, ...]:
        return tuple(cidr for cidr in (self.pod_cidr, self.pod_cidr_v6) if cidr)

    def settings(self, machine: Machine | None = None) -> NodeSettings:
        return NodeSettings(
            instance=self.instance,
            name=self.name,
            root=Path(self.root).absolute(),
            image_store=Path(self.image_dir).absolute(),
            pod_cidrs=self.pod_cidrs,
            node_ips=(self.address,),
            cpus=Decimal(machine.cpus if machine else 1),
            memory=machine.memory if machine else 0,
            protected=tuple(Path(path) for path in (self.data_dir, self.node_info_dir) if path),
            host_image=self.host_image,
            cgroup_parent=self.cgroup_parent,
            cni_dirs=tuple(self.cni_dirs),
            runc=self.runc,
            conmon=self.conmon,
            cluster_dns=tuple(self.cluster_dns),
        )
