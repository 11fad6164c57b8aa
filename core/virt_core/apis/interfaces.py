"""The NICs of a VMI."""

from __future__ import annotations

from typing import Annotated

from virt_core.apis import bindings
from virt_core.apis.base import REQUIRED, Struct, Uint


class InterfaceBridge(Struct):
    """The guest takes the Pod's MAC and IP."""


class InterfaceMasquerade(Struct):
    """The guest has a private address behind the Pod's."""


class InterfaceSRIOV(Struct):
    """The guest gets a virtual function of the card."""


class InterfacePasstBinding(Struct):
    """The guest's traffic goes through passt."""


class DeprecatedInterfaceSlirp(Struct):
    """No longer supported; named so that it can be refused with a reason."""


class DeprecatedInterfaceMacvtap(Struct):
    """No longer supported; named so that it can be refused with a reason."""


class DeprecatedInterfacePasst(Struct):
    """No longer supported; named so that it can be refused with a reason."""


class PluginBinding(Struct):
    """A binding that the cluster's configuration names."""

    name: str  #: The binding's name.


class Port(Struct):
    """A port that the guest serves."""

    port: int  #: The port number.
    name: str = ""  #: A name for it.
    protocol: str = ""  #: TCP (default) or UDP.


class PortRange(Struct):
    """A range of ports that the guest serves."""

    protocol: Annotated[str, REQUIRED] = ""  #: TCP or UDP.
    start: Annotated[int, REQUIRED] = 0  #: The first port.
    end: Annotated[int, REQUIRED] = 0  #: The last port.


class DHCPPrivateOptions(Struct):
    """A private DHCP option."""

    option: int  #: 224 to 254.
    value: str  #: Its value.


class DHCPOptions(Struct):
    """What the guest's DHCP answer carries beside the address."""

    boot_file_name: str = ""  #: Option 67.
    tftp_server_name: str = ""  #: Option 66.
    ntp_servers: list[str] = []  #: Option 42.
    private_options: list[DHCPPrivateOptions] = []  #: Options 224 to 254.


class Interface(Struct):
    """A NIC of the guest, on the network with the same name. Exactly one binding."""

    name: str  #: The name of the NIC and of its network.
    model: str = ""  #: e1000, e1000e, igb, ne2k_pci, pcnet, rtl8139 or virtio (default).
    bridge: InterfaceBridge | None = None  #: Take over the Pod's MAC and IP.
    masquerade: InterfaceMasquerade | None = None  #: A private address behind the Pod's.
    sriov: InterfaceSRIOV | None = None  #: A virtual function.
    passt_binding: InterfacePasstBinding | None = None  #: Through passt.
    binding: PluginBinding | None = None  #: A binding of the cluster's configuration.
    slirp: DeprecatedInterfaceSlirp | None = None  #: No longer supported.
    macvtap: DeprecatedInterfaceMacvtap | None = None  #: No longer supported.
    passt: DeprecatedInterfacePasst | None = None  #: No longer supported.
    ports: list[Port] = []  #: The ports to forward; none means all.
    port_ranges: list[PortRange] = []  #: Ranges of ports to forward.
    mac_address: str = ""  #: The MAC address.
    boot_order: Uint | None = None  #: The place in the boot order, from 1.
    pci_address: str = ""  #: The PCI address.
    dhcp_options: DHCPOptions | None = None  #: More for the guest's DHCP answer.
    tag: str = ""  #: A tag for the guest's metadata.
    acpi_index: int = 0  #: The index that the guest may name the NIC by.
    state: str = ""  #: up, down or absent (to be removed).


def default_interface(name: str, binding: str) -> Interface:
    """The NIC that a VMI gets which says nothing about networks; a bridge where the cluster names no binding."""
    if binding == bindings.MASQUERADE:
        return Interface(name=name, masquerade=InterfaceMasquerade())
    if binding == bindings.SLIRP:
        return Interface(name=name, slirp=DeprecatedInterfaceSlirp())  # A rule refuses it and says why.
    return Interface(name=name, bridge=InterfaceBridge())


#: As many PCI ports as a machine gets for devices that are not there yet.
MOST_PCI_PORTS = 31
#: QEMU's own limit.
MOST_ACPI_INDEX = 16383


def interface_slots(text: str) -> int | None:
    """The number of ports in the annotation for network cards; None if it is none."""
    return int(text) if text.isascii() and text.isdigit() and int(text) <= MOST_PCI_PORTS else None
