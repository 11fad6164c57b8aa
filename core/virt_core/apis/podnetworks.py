"""Networks of a Pod beside its own: how they are asked for and told of by annotations, as Multus reads and writes them.
Pure.

A Pod's annotation names NetworkAttachmentDefinitions and the interface that each shall become; another annotation
says what became of them. Interfaces are named after the VMI's network, so that the name is known beforehand and stays
whatever else comes or goes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import field

from virt_core.apis import names
from virt_core.apis.base import UNREADABLE, Struct, decode, encode
from virt_core.apis.bindings import binding_of, row_of
from virt_core.apis.interfaces import Interface
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.networks import MultusNetwork, Network
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec

PRIMARY = "eth0"
#: What virt-netsetup calls the bridge behind it.
PRIMARY_BRIDGE = f"k6t-{PRIMARY}"
ABSENT = "absent"
#: The argument with the name of a network of the VMI.
LOGIC_NETWORK = "logicNetworkName"
#: Where status.interfaces[].infoSource knows an interface from.
SOURCE_DOMAIN, SOURCE_AGENT, SOURCE_MULTUS = "domain", "guest-agent", "multus-status"
#: What others write is read up to here.
_MOST_BYTES = 1 << 16


class NetworkAttachmentDefinitionSpec(Struct):
    """What a secondary network is."""

    config: str = ""  #: A network configuration of the CNI specification, as JSON text.


class NetworkAttachmentDefinition(Struct):
    """A network beside the Pod network. Not ours: the network plumbing group's."""

    api_version: str = "k8s.cni.cncf.io/v1"
    kind: str = "NetworkAttachmentDefinition"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NetworkAttachmentDefinitionSpec = field(default_factory=NetworkAttachmentDefinitionSpec)


class Selection(Struct):
    """One entry of the annotation that asks for networks."""

    name: str
    namespace: str = ""
    interface: str = ""
    mac: str = ""
    #: For the CNI plugin. That of a network binding plugin learns here which network of the VMI it is asked for.
    cni_args: dict[str, Any] = field(default_factory=dict, name="cni-args")

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class PciDevice(Struct):
    """The PCI function that a Pod got for a network."""

    pci_address: str = field(default="", name="pci-address")


class DeviceInfo(Struct):
    """What kind of device it got."""

    type: str = ""
    version: str = ""
    pci: PciDevice | None = None


class Attached(Struct):
    """One entry of the annotation that tells what became of them."""

    name: str = ""
    interface: str = ""
    ips: list[str] = []
    mac: str = ""
    mtu: int = 0
    default: bool = False
    dns: dict[str, Any] = {}
    device_info: DeviceInfo | None = field(default=None, name="device-info")


def interface_name(network: str) -> str:
    """What the Pod's interface for a network of a VMI is called."""
    return "pod" + hashlib.sha256(network.encode()).hexdigest()[:11]


def is_primary(network: Network) -> bool:
    """Whether it is what the Pod has by itself: its own network, or another one in its place."""
    return network.pod is not None or (network.multus is not None and network.multus.default)


def pod_interface(network: Network) -> str:
    return PRIMARY if is_primary(network) else interface_name(network.name)


def definition_of(multus: MultusNetwork, namespace: str) -> tuple[str, str]:
    """Namespace and name of the NetworkAttachmentDefinition; without a namespace it is the VMI's."""
    before, slash, after = multus.network_name.rpartition("/")
    return (before, after) if slash else (namespace, after)


def secondary(spec: VirtualMachineInstanceSpec) -> dict[str, Network]:
    """The networks that a NIC is plugged into beside the first one, by name."""
    return {n.name: n for n in spec.networks if n.multus is not None and not is_primary(n)}


def pluggable(spec: VirtualMachineInstanceSpec) -> dict[str, Interface]:
    """The NICs that may come and go while a machine runs, by name."""
    known = secondary(spec)
    rows = {nic.name: row_of(binding_of(nic)) for nic in spec.domain.devices.interfaces}
    able = {name for name, row in rows.items() if row is not None and row.pluggable}
    return {nic.name: nic for nic in spec.domain.devices.interfaces if nic.name in known and nic.name in able}


def requested(vmi: VirtualMachineInstance, *, started: bool) -> list[Selection]:
    """The networks that the launcher Pod needs, in the order of the spec. Once it runs, one that is to go stays until
    the machine has let go of its NIC."""
    networks = secondary(vmi.spec)
    held = (
        {nic.name for nic in vmi.status.interfaces if SOURCE_DOMAIN in sources(nic.info_source)} if started else set()
    )
    return [
        _selection(nic, networks[nic.name], vmi.metadata.namespace)
        for nic in vmi.spec.domain.devices.interfaces
        if nic.name in networks and (nic.state != ABSENT or nic.name in held)
    ]


def _selection(nic: Interface, network: Network, namespace: str) -> Selection:
    assert network.multus is not None
    space, name = definition_of(network.multus, namespace)
    mac = nic.mac_address.lower().replace("-", ":")
    return Selection(name=name, namespace=space, interface=interface_name(nic.name), mac=mac)


def of_plugin(definition: str, network: str, namespace: str) -> Selection:
    """How the CNI plugin of a network binding plugin is called for one network of the VMI."""
    space, name = definition_of(MultusNetwork(network_name=definition), namespace)
    return Selection(name=name, namespace=space, cni_args={LOGIC_NETWORK: network})


def annotations_for(
    vmi: VirtualMachineInstance, *, moving: bool = False, plugins: Sequence[Selection] = ()
) -> dict[str, str]:
    """What a new launcher Pod asks for. A machine that moves there brings all the NICs that it has."""
    found = {}
    for network in vmi.spec.networks:
        if network.multus is not None and network.multus.default:
            found[names.ANNOTATION_DEFAULT_NETWORK] = "/".join(definition_of(network.multus, vmi.metadata.namespace))
    if wanted := [*requested(vmi, started=moving), *plugins]:
        found[names.ANNOTATION_NETWORKS] = text(wanted)
    return found


def text(selections: list[Selection]) -> str:
    return encode(selections).decode()


def selections(said: str) -> list[Selection]:
    """What an annotation in our form asks for; nothing if it cannot be read so."""
    try:
        return decode(said[:_MOST_BYTES] or "[]", list[Selection])
    except UNREADABLE:
        return []


def attached(pod_annotations: Mapping[str, str]) -> dict[str, Attached]:
    """What a Pod has, by the name of its interface. What cannot be read counts as nothing."""
    said = pod_annotations.get(names.ANNOTATION_NETWORK_STATUS, "")
    try:
        found = decode(said[:_MOST_BYTES] or "[]", list[Attached])
    except UNREADABLE:
        return {}
    return {entry.interface: entry for entry in found if entry.interface}


def sources(info_source: str) -> list[str]:
    return [word for each in info_source.split(",") if (word := each.strip())]


def joined(*known: str) -> str:
    """Sources as status.interfaces lists them."""
    return ", ".join(word for word in (SOURCE_DOMAIN, SOURCE_AGENT, SOURCE_MULTUS) if word in known)
