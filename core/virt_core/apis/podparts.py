"""Small parts that Pods and VMIs have in common: references, probe actions, DNS, resource lists, downward fields."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virt_core.apis.base import REQUIRED, Struct
from virt_core.apis.quantity import IntOrString, Quantity


class LocalObjectReference(Struct):
    """An object of the same namespace, by name."""

    name: str = ""  #: The object's name.


class TypedLocalObjectReference(Struct):
    """An object of the same namespace, by kind and name."""

    kind: Annotated[str, REQUIRED] = ""  #: The object's kind.
    name: Annotated[str, REQUIRED] = ""  #: The object's name.
    api_group: str | None = None  #: The group of the kind; the core group by default.


class TypedObjectReference(Struct):
    """An object by kind and name, of another namespace where that is permitted."""

    kind: Annotated[str, REQUIRED] = ""  #: The object's kind.
    name: Annotated[str, REQUIRED] = ""  #: The object's name.
    api_group: str | None = None  #: The group of the kind; the core group by default.
    namespace: str | None = None  #: The object's namespace; that of the referrer by default.


class ObjectReference(Struct):
    """Any object, for events and bindings."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""
    field_path: str = ""


class HTTPHeader(Struct):
    """A header of a probe request."""

    name: str  #: The header's name.
    value: str  #: Its value.


class HTTPGetAction(Struct):
    """A probe by HTTP: a status of 200 to 399 is success."""

    port: IntOrString  #: The port, by number or name.
    path: str = ""  #: The path of the request.
    host: str = ""  #: The host to connect to; the Pod's IP by default.
    scheme: str = ""  #: HTTP (default) or HTTPS.
    http_headers: list[HTTPHeader] = []  #: Headers of the request.


class TCPSocketAction(Struct):
    """A probe by connecting to a TCP port."""

    port: IntOrString  #: The port, by number or name.
    host: str = ""  #: The host to connect to; the Pod's IP by default.


class ExecAction(Struct):
    """A probe by a command: exit code 0 is success."""

    command: list[str] = []  #: The command and its arguments, not run in a shell.


class GRPCAction(Struct):
    """A probe by the gRPC health service."""

    port: int
    service: str | None = None


class PodDNSConfigOption(Struct):
    """A resolver option."""

    name: str = ""  #: The option's name.
    value: str | None = None  #: Its value.


class PodDNSConfig(Struct):
    """DNS settings beyond those of the DNS policy."""

    nameservers: list[str] = []  #: Further name servers, by IP.
    searches: list[str] = []  #: Further search domains.
    options: list[PodDNSConfigOption] = []  #: Further resolver options.


class ObjectFieldSelector(Struct):
    """A field of the object itself."""

    field_path: str  #: The path, such as metadata.name.
    api_version: str = ""  #: The version that the path is written in.


class ResourceFieldSelector(Struct):
    """A resource of a container."""

    resource: str  #: The resource, such as limits.cpu.
    container_name: str = ""  #: The container.
    divisor: Quantity | None = None  #: The unit of the answer.


class DownwardAPIVolumeFile(Struct):
    """A file that holds a field of the object."""

    path: str  #: The file's path in the volume.
    field_ref: ObjectFieldSelector | None = None  #: The field.
    resource_field_ref: ResourceFieldSelector | None = None  #: The resource.
    mode: int | None = None  #: The file's mode bits.


class ResourceClaim(Struct):
    """A claim that a container uses."""

    name: str
    request: str = ""


class ResourceRequirements(Struct):
    """What a container asks for and what it may not exceed."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    claims: list[ResourceClaim] = []


class PersistentVolumeClaimVolumeSource(Struct):
    """A claim of the same namespace."""

    claim_name: str  #: The claim's name.
    read_only: bool = field(default=False)  #: Mount it read-only.


class PodResourceClaim(Struct):
    """A dynamic resource claim of the Pod."""

    name: str  #: The name by which containers and devices refer to the claim.
    resource_claim_name: str | None = None  #: An existing claim.
    resource_claim_template_name: str | None = None  #: A template to make a claim from.
