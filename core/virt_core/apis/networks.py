"""The networks of a VMI: what a guest NIC is connected to."""

from __future__ import annotations

import re

from msgspec import field

from virt_core.apis.base import Struct

_LEADING_ZEROS = re.compile(r"\b0+(?=[0-9])", re.ASCII)


def decimal_octets(text: str) -> str:
    """An IPv4 address or range whose octets have leading zeros, read as people mean it: 10.010.0.0 is 10.10.0.0."""
    return text if ":" in text else _LEADING_ZEROS.sub("", text)


class PodNetwork(Struct):
    """The Pod's own network."""

    vm_network_cidr: str = field(default="", name="vmNetworkCIDR")  #: The guest's IPv4 network; 10.0.2.0/24 by default.
    #: The guest's IPv6 network; fd10:0:2::/120 by default.
    vm_ipv6_network_cidr: str = field(default="", name="vmIPv6NetworkCIDR")


class MultusNetwork(Struct):
    """A secondary network that Multus provides."""

    network_name: str  #: The NetworkAttachmentDefinition, as name or namespace/name.
    default: bool = False  #: Use it in place of the Pod's own network.


class ResourceClaimNetworkSource(Struct):
    """A network device from a dynamic resource claim."""

    claim_name: str = ""  #: The claim in spec.resourceClaims.
    request_name: str = ""  #: The request within the claim.


class Network(Struct):
    """A network and the name by which an interface refers to it. Exactly one source."""

    name: str  #: The name; an interface of the same name is connected to it.
    pod: PodNetwork | None = None  #: The Pod's own network.
    multus: MultusNetwork | None = None  #: A secondary network.
    resource_claim: ResourceClaimNetworkSource | None = None  #: A device of a resource claim.
