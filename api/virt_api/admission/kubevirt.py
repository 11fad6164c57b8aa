"""Admission of the KubeVirt object, the cluster's configuration."""

from __future__ import annotations

from typing import Any

from virt_api.admission.causes import Denied, Refused, invalid
from virt_api.admission.cluster import Cluster
from virt_api.admission.objects import document_of, is_terminating, name_of, read_member
from virt_api.admission.review import Accepted
from virt_core.apis import gates
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.kubevirt import KubeVirt, KubeVirtSpec
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.clusterconfig import find_flaws

_BLOCK_UNINSTALL = "BlockUninstallIfWorkloadsExist"


class KubeVirtValidator:
    """One in a cluster, with a configuration that can work; kept while machines need it, if it says so."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __call__(self, request: AdmissionRequest) -> Accepted:
        """Raises Refused or Denied; warns of feature gates that have no effect or soon will not."""
        if request.operation == "DELETE":
            self._delete(document_of(request.old_object))
            return Accepted()
        document = document_of(request.object)
        if is_terminating(document):
            return Accepted()
        developer = read_member(document, KubeVirtSpec).configuration.developer_configuration
        configuration = document["spec"].get("configuration") or {}
        if causes := [invalid(flaw.field, flaw.message) for flaw in find_flaws(configuration)]:
            raise Refused(causes)
        if request.operation == "CREATE" and (others := self._cluster.list(KubeVirt)):
            where = f"{others[0].metadata.namespace}/{others[0].metadata.name}"
            raise Denied(f"there is already a KubeVirt object, {where}; a cluster can have only one")
        return Accepted(warnings=gates.warnings(developer.feature_gates if developer is not None else ()))

    def _delete(self, old: dict[str, Any]) -> None:
        spec = old.get("spec")
        if not isinstance(spec, dict) or spec.get("uninstallStrategy") != _BLOCK_UNINSTALL:
            return
        for cls in (VirtualMachineInstance, VirtualMachine):
            if self._cluster.list(cls):
                name = name_of(old)
                raise Denied(f"KubeVirt {name} cannot be deleted while there are {cls.__name__}s")
