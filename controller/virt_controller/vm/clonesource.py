"""May this VM copy that claim? A template of a DataVolume can name a claim of another namespace as its source.

virt-controller makes the DataVolume and may read every namespace, so it must not lend that right to whoever can write a
VM. The VM's own service account is asked about instead, as the importer documents it: `create` on `datavolumes/source`
in the namespace of the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from virt_core.apis.auth import ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec
from virt_core.apis.vm import DataVolumeTemplateSpec, VirtualMachine
from virt_core.kube.client import KubeClient
from virt_core.kube.typelookup import KubeLookup

_DEFAULT_ACCOUNT = "default"
#: A DataSource may point to another one, but not for ever.
_MAX_STEPS = 4


class CloneRefusedError(Exception):
    """The VM's service account may not copy the source."""


@dataclass(frozen=True, slots=True)
class Source:
    namespace: str
    name: str


def account_of(vm: VirtualMachine) -> str:
    """The service account whose token the guest gets, or the namespace's own."""
    volumes = vm.spec.template.spec.volumes if vm.spec.template is not None else []
    given = (v.service_account.service_account_name for v in volumes if v.service_account is not None)
    return next(given, "") or _DEFAULT_ACCOUNT


class CloneGuard:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    def check(self, vm: VirtualMachine, template: DataVolumeTemplateSpec) -> None:
        """Raises CloneRefusedError, ApiError."""
        source = self._source(template.spec, vm.metadata.namespace)
        if source is None or source.namespace == vm.metadata.namespace:
            return
        account = account_of(vm)
        if not self._allowed(vm.metadata.namespace, account, source):
            name = template.metadata.name if template.metadata is not None else ""
            raise CloneRefusedError(
                f"DataVolume {name!r} cannot be made: service account {vm.metadata.namespace}/{account} may not copy "
                f"{source.namespace}/{source.name} (create on datavolumes/source in that namespace)"
            )

    def _allowed(self, namespace: str, account: str, source: Source) -> bool:
        wanted = ResourceAttributes(
            namespace=source.namespace,
            verb="create",
            group="cdi.kubevirt.io",
            resource="datavolumes",
            subresource="source",
            name=source.name,
        )
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
        spec = SubjectAccessReviewSpec(
            resource_attributes=wanted, user=f"system:serviceaccount:{namespace}:{account}", groups=groups
        )
        status = self._client.create(SubjectAccessReview(spec=spec)).status
        return status.allowed and not status.denied

    def _source(self, spec: dict[str, Any], namespace: str) -> Source | None:
        """The claim or snapshot that is copied, if any is; through DataSources, if it is given by one."""
        reference: Any = spec.get("sourceRef")
        for _ in range(_MAX_STEPS):
            if not _is_data_source(reference):
                return _copied(spec.get("source"), namespace)
            namespace = reference.get("namespace") or namespace
            found = self._data_source(reference.get("name", ""), namespace)
            # One that is not there yet could point anywhere: what it will be is not ours to guess.
            spec = {"source": found.get("source")} if found else {}
            reference = (found.get("source") or {}).get("dataSource") if found else None
            if found is None:
                return Source(namespace, "")
        return Source(namespace, "")

    def _data_source(self, name: str, namespace: str) -> dict[str, Any] | None:
        lookup = KubeLookup(self._client)
        found = lookup.document("DataSource", name, namespace)
        spec = (found or {}).get("spec")
        return spec if isinstance(spec, dict) else None


def _is_data_source(reference: Any) -> bool:
    return isinstance(reference, dict) and reference.get("kind", "DataSource") == "DataSource"


def _copied(source: Any, namespace: str) -> Source | None:
    for kind in ("pvc", "snapshot"):
        given = source.get(kind) if isinstance(source, dict) else None
        if isinstance(given, dict):
            return Source(given.get("namespace") or namespace, str(given.get("name") or ""))
    return None
