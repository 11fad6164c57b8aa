"""Who must know whom to trust when calling virt-api: the API services. Admission reviews come by them too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from virt_controller.certificates.bundles import decoded
from virt_core.apis import names, upload
from virt_core.apis.apiextensions import APIService
from virt_core.kube.patch import op, pointer

#: As in the manifests apiservice.yaml and uploads.yaml; the last is there only where DataVolumes are ours.
API_SERVICES = (
    *(f"{version}.{names.SUBRESOURCE_GROUP}" for version in (names.VERSION, names.VERSION_OLD)),
    upload.API_SERVICE,
)

Operations = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Target:
    """An object with CA bundles in it."""

    cls: type[Any]
    name: str
    #: Where bundles are in the object, and what is there now.
    places: Callable[[Any, str], dict[str, str | None]]

    @property
    def key(self) -> str:
        return f"{self.cls.__name__}/{self.name}"

    def bundle(self, obj: Any, namespace: str) -> bytes | None:
        """The bundle, if all places have the same one; else empty. None: no place of ours in it."""
        found = set(self.places(obj, namespace).values())
        if not found:
            return None
        return decoded(found.pop()) if len(found) == 1 else b""

    def operations(self, obj: Any, namespace: str, bundle: str) -> Operations:
        """The least change that puts the bundle everywhere; nothing else in the object is ours."""
        return [op.add(place, bundle) for place, old in self.places(obj, namespace).items() if old != bundle]


def _service(obj: APIService, namespace: str) -> dict[str, str | None]:
    service = obj.spec.service
    if service is None or (service.namespace, service.name) != (namespace, names.SERVICE_API):
        return {}
    return {pointer("spec", "caBundle"): obj.spec.ca_bundle}


TARGETS = tuple(Target(APIService, name, _service) for name in API_SERVICES)
