"""Admission of the KubeVirt object, the cluster's configuration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from virt_api.admission.causes import Cause, Denied, Refused, invalid, one_of
from virt_api.admission.cluster import Cluster
from virt_api.admission.objects import document_of, is_terminating, name_of, read_member
from virt_api.admission.review import Accepted
from virt_core.apis import gates
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.kubevirt import KubeVirt, KubeVirtSpec, KubeVirtWorkloadUpdateStrategy
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.workloadupdate import METHODS, interval_of
from virt_core.kube.clusterconfig import find_flaws

_BLOCK_UNINSTALL = "BlockUninstallIfWorkloadsExist"
#: The other fields of a spec are for an operator.
_IN_FORCE = frozenset({"configuration", "uninstallStrategy", "workloadUpdateStrategy"})
_NO_OPERATOR = "there is no operator that would read it; the values of the chart say how Virtpod is installed"

_CHARTS_ROLES = "the roles are the chart's, which reads it in its own values (kubevirt.configuration)"


class KubeVirtValidator:
    """One in a cluster, with a configuration that can work; kept while machines need it, if it says so."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __call__(self, request: AdmissionRequest) -> Accepted:
        """Raises Refused or Denied; warns of what has no effect, and of feature gates that soon will have none."""
        if request.operation == "DELETE":
            self._delete(document_of(request.old_object))
            return Accepted()
        document = document_of(request.object)
        if is_terminating(document):
            return Accepted()
        spec = read_member(document, KubeVirtSpec)
        developer = spec.configuration.developer_configuration
        configuration = document["spec"].get("configuration") or {}
        flaws = [invalid(flaw.field, flaw.message) for flaw in find_flaws(configuration)]
        if causes := [*flaws, *_update_causes(spec.workload_update_strategy)]:
            raise Refused(causes)
        if request.operation == "CREATE" and (others := self._cluster.list(KubeVirt)):
            where = f"{others[0].metadata.namespace}/{others[0].metadata.name}"
            raise Denied(f"there is already a KubeVirt object, {where}; a cluster can have only one")
        listed = developer.feature_gates if developer is not None else ()
        return Accepted(warnings=[*ineffective(document["spec"]), *gates.warnings(listed)])

    def _delete(self, old: dict[str, Any]) -> None:
        spec = old.get("spec")
        if not isinstance(spec, dict) or spec.get("uninstallStrategy") != _BLOCK_UNINSTALL:
            return
        for cls in (VirtualMachineInstance, VirtualMachine):
            if self._cluster.list(cls):
                name = name_of(old)
                raise Denied(f"KubeVirt {name} cannot be deleted while there are {cls.__name__}s")


def _update_causes(strategy: KubeVirtWorkloadUpdateStrategy | None) -> Iterator[Cause]:
    if strategy is None:
        return
    field = "spec.workloadUpdateStrategy"
    for i, method in enumerate(strategy.workload_update_methods):
        if method not in METHODS:
            yield invalid(f"{field}.workloadUpdateMethods[{i}]", one_of(method, METHODS))
    if strategy.batch_eviction_size is not None and strategy.batch_eviction_size < 1:
        yield invalid(f"{field}.batchEvictionSize", "must be at least 1")
    try:
        interval_of(strategy)
    except ValueError as error:
        yield invalid(f"{field}.batchEvictionInterval", str(error))


def ineffective(spec: dict[str, Any]) -> Iterator[str]:
    """A sentence for each field that says something to nobody. Tools of KubeVirt set them, so they are not refused."""
    for name, value in spec.items():
        if name not in _IN_FORCE and _says_something(value):
            yield f"spec.{name} has no effect: {_NO_OPERATOR}"
    if (spec.get("configuration") or {}).get("roleAggregationStrategy"):
        yield f"spec.configuration.roleAggregationStrategy has no effect in this object: {_CHARTS_ROLES}"
    migrations = (spec.get("configuration") or {}).get("migrations") or {}
    if migrations.get("disableTLS"):
        yield "spec.configuration.migrations.disableTLS has no effect: machines always move encrypted"


def _says_something(value: object) -> bool:
    if isinstance(value, dict):
        return any(_says_something(each) for each in value.values())
    return value not in (None, "", [])
