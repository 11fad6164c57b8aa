"""Writes of a status: it must be one, and a VM's wishes must make sense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from virt_api.admission.causes import Refused, invalid
from virt_api.admission.cluster import Cluster
from virt_api.admission.objects import document_of, is_terminating, name_of, read_member
from virt_api.admission.vm.requests import broken_requests
from virt_api.admission.vm.validate import frozen_while_busy
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.base import from_plain
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.migration import VirtualMachineInstanceMigrationStatus
from virt_core.apis.replicaset import VirtualMachineInstanceReplicaSetStatus
from virt_core.apis.vm import VirtualMachine, VirtualMachineSpec, VirtualMachineStatus
from virt_core.kube.configvalues import ClusterConfig

_STATUSES: dict[str, type[msgspec.Struct]] = {
    "VirtualMachine": VirtualMachineStatus,
    "VirtualMachineInstanceReplicaSet": VirtualMachineInstanceReplicaSetStatus,
    "VirtualMachineInstanceMigration": VirtualMachineInstanceMigrationStatus,
}


class StatusValidator:
    def __init__(self, config: Callable[[], ClusterConfig], cluster: Cluster) -> None:
        self._config, self._cluster = config, cluster

    def __call__(self, request: AdmissionRequest) -> None:
        """Raises Refused with every cause. Unknown fields of a status are tolerated."""
        document = document_of(request.object)
        cls = _STATUSES.get(request.kind.kind)
        if cls is None or is_terminating(document):
            return
        try:
            status = from_plain(document.get("status") or {}, cls)
        except msgspec.ValidationError as error:
            raise Refused([invalid("status", str(error))]) from error
        if isinstance(status, VirtualMachineStatus):
            self._vm(request, document, status)

    def _vm(self, request: AdmissionRequest, document: dict[str, Any], status: VirtualMachineStatus) -> None:
        causes = list(frozen_while_busy(document, document_of(request.old_object)))
        if status.volume_requests:
            name = name_of(document) or request.name
            vm = VirtualMachine(
                metadata=ObjectMeta(name=name, namespace=request.namespace),
                spec=read_member(document, VirtualMachineSpec),
            )
            causes += broken_requests(vm, status.volume_requests, self._cluster, self._config())
        if causes:
            raise Refused(causes)
