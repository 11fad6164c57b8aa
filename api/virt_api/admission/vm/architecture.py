"""The architecture of a VM that does not name one: that of the image its disk is made from, else the cluster's."""

from __future__ import annotations

from virt_api.admission.cluster import Cluster
from virt_api.admission.objects import labels_of
from virt_api.config import ClusterConfig
from virt_core.apis.vm import VirtualMachine

LABEL = "template.kubevirt.io/architecture"
KNOWN = ("amd64", "arm64", "s390x")


def architecture_of(vm: VirtualMachine, cluster: Cluster, config: ClusterConfig) -> str:
    for entry in vm.spec.data_volume_templates:
        reference = entry.spec.get("sourceRef")
        if isinstance(reference, dict) and reference.get("kind") == "DataSource":
            namespace = reference.get("namespace") or vm.metadata.namespace
            found = cluster.document("DataSource", str(reference.get("name") or ""), str(namespace)) or {}
            named = labels_of(found).get(LABEL, "")
            if named in KNOWN:
                return named
    return config.default_architecture
