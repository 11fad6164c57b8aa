"""Where a Service answers: its port, looked up in the ready endpoints of its EndpointSlices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from virt_local.apiserver.hooks import Object
from virt_local.apiserver.security.objects import Kept, Source

_SERVICE_NAME = "kubernetes.io/service-name"


class NoEndpoint(Exception):
    """The Service cannot be reached now; `reason` is in the words of an APIService's condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int
    #: The name that its certificate must carry.
    server_name: str

    @property
    def base(self) -> str:
        return f"https://[{self.host}]:{self.port}" if ":" in self.host else f"https://{self.host}:{self.port}"


class Resolver:
    def __init__(self, source: Source) -> None:
        self._services = Kept(source, "services")
        self._slices = Kept(source, "endpointslices.discovery.k8s.io")

    def resolve(self, namespace: str, name: str, port: int) -> Endpoint:
        service = self._services.get(namespace, name)
        if service is None:
            raise NoEndpoint("ServiceNotFound", f'service/{name} in "{namespace}" is not present')
        port_name = _port_name(service, port)
        for piece in self._slices.in_namespace(namespace):
            if (piece["metadata"].get("labels") or {}).get(_SERVICE_NAME) == name:
                found = _ready(piece, port_name)
                if found is not None:
                    return Endpoint(found[0], found[1], f"{name}.{namespace}.svc")
        raise NoEndpoint("MissingEndpoints", f'no endpoints available for service "{name}" in namespace "{namespace}"')

    @property
    def generation(self) -> int:
        """Grows when an answer may have changed."""
        return self._services.generation + self._slices.generation


def _port_name(service: Object, port: int) -> str:
    for entry in (service.get("spec") or {}).get("ports") or ():
        if entry.get("port") == port:
            return str(entry.get("name") or "")
    metadata = service["metadata"]
    raise NoEndpoint(
        "ServicePortError", f"service {metadata['namespace']}/{metadata['name']} is not listening on port {port}"
    )


def _ready(piece: Object, port_name: str) -> tuple[str, int] | None:
    port = next(
        (entry.get("port") for entry in piece.get("ports") or () if (entry.get("name") or "") == port_name), None
    )
    if port is None:
        return None
    for endpoint in piece.get("endpoints") or ():
        conditions: dict[str, Any] = endpoint.get("conditions") or {}
        if conditions.get("ready", True) is not False and endpoint.get("addresses"):
            return str(endpoint["addresses"][0]), int(port)
    return None
