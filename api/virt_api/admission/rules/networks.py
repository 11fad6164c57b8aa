"""Rules about networks and NICs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from virt_api.admission.causes import Cause, duplicate, invalid, not_found, not_supported, one_of, required
from virt_api.admission.rules.base import PCI_ADDRESS, Check
from virt_core.apis import bindingplugins
from virt_core.apis.bindings import AS_PASST, BINDINGS, REMOVED, Binding, binding_of, removed
from virt_core.apis.devices import DHCPOptions, Interface, Port
from virt_core.apis.interfaces import MOST_ACPI_INDEX
from virt_core.apis.networks import Network, decimal_octets
from virt_core.apis.podnetworks import is_primary

MODELS = ("", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", "virtio")
STATES = ("", "absent", "up", "down")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DEFINITION = re.compile(rf"({_LABEL}/)?{_LABEL}(\.{_LABEL})*")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
_MAC = re.compile(r"([0-9a-fA-F]{2}([:-]))([0-9a-fA-F]{2}\2){4}[0-9a-fA-F]{2}|([0-9a-fA-F]{4}\.){2}[0-9a-fA-F]{4}")
_MOST_OPTION_BYTES = 255
#: The address that the masquerade bridge itself uses.
_BRIDGE_MAC = "02:00:00:00:00:00"


def network_sources(check: Check) -> Iterator[Cause]:
    for i, network in enumerate(check.spec.networks):
        field = f"{check.path}.networks[{i}]"
        given = sum(source is not None for source in (network.pod, network.multus, network.resource_claim))
        if given != 1:
            yield required(field, f"network {network.name!r} must have exactly one source")
        elif network.multus is not None and not network.multus.network_name:
            yield required(field, "multus needs a networkName")
        elif network.multus is not None and not _DEFINITION.fullmatch(network.multus.network_name):
            words = (
                f"{network.multus.network_name!r} is neither name nor namespace/name of a NetworkAttachmentDefinition"
            )
            yield invalid(f"{field}.multus.networkName", words)


def network_names(check: Check) -> Iterator[Cause]:
    interfaces = {interface.name for interface in check.spec.domain.devices.interfaces}
    seen: set[str] = set()
    for i, network in enumerate(check.spec.networks):
        field = f"{check.path}.networks[{i}].name"
        if network.name in seen:
            yield duplicate(field, f"two networks are called {network.name!r}")
        seen.add(network.name)
        if network.name not in interfaces:
            yield required(field, f"no interface is called {network.name!r}")


def one_default_network(check: Check) -> Iterator[Cause]:
    networks = check.spec.networks
    pods = sum(network.pod is not None for network in networks)
    defaults = sum(network.multus is not None and network.multus.default for network in networks)
    if pods > 1:
        yield duplicate(f"{check.path}.interfaces", "only one network can be the Pod network")
    if defaults > 1:
        yield invalid(f"{check.path}.networks", "only one multus network can be the default")
    elif defaults and pods:
        yield invalid(f"{check.path}.networks", "the Pod network and a default multus network cannot be given together")


def pod_network_cidrs(check: Check) -> Iterator[Cause]:
    """Gateway, guest and broadcast need room: a /30 is the least."""
    for i, network in enumerate(check.spec.networks):
        if network.pod is None:
            continue
        field = f"{check.path}.networks[{i}].pod"
        if network.pod.vm_network_cidr:
            yield from _cidr(f"{field}.vmNetworkCIDR", network.pod.vm_network_cidr, 4)
        if network.pod.vm_ipv6_network_cidr:
            yield from _cidr(f"{field}.vmIPv6NetworkCIDR", network.pod.vm_ipv6_network_cidr, 6)


def _cidr(field: str, text: str, version: int) -> Iterator[Cause]:
    try:
        network = ipaddress.ip_network(decimal_octets(text), strict=False)
    except ValueError as error:
        yield invalid(field, str(error))
        return
    if network.version != version:
        yield invalid(field, f"{text} is not an IPv{version} network")
    elif network.num_addresses < 4:
        yield invalid(field, f"{text} has no room for a gateway and a guest")


def resource_claims(check: Check) -> Iterator[Cause]:
    claims = {claim.name for claim in check.spec.resource_claims}
    for i, network in enumerate(check.spec.networks):
        claim = network.resource_claim
        if claim is None:
            continue
        field = f"{check.path}.networks[{i}].resourceClaim"
        if not check.config.has("NetworkDevicesWithDRA"):
            yield invalid(f"{check.path}.networks", "needs the feature gate NetworkDevicesWithDRA")
        for name, value in (("claimName", claim.claim_name), ("requestName", claim.request_name)):
            if not value:
                yield required(f"{field}.{name}", "must be given")
        if claim.claim_name and claim.claim_name not in claims:
            yield not_found(
                f"{field}.claimName", f"there is no claim {claim.claim_name!r} in {check.path}.resourceClaims"
            )


def interface_names(check: Check) -> Iterator[Cause]:
    networks = {network.name for network in check.spec.networks}
    seen: set[str] = set()
    for i, interface in enumerate(check.spec.domain.devices.interfaces):
        field = f"{check.devices}.interfaces[{i}].name"
        if not _NAME.fullmatch(interface.name):
            yield invalid(field, f"{interface.name!r} must be letters, digits, '-' and '_' only")
        if interface.name not in networks:
            yield invalid(field, f"there is no network {interface.name!r} in {check.path}.networks")
        if interface.name in seen:
            yield duplicate(field, f"two interfaces are called {interface.name!r}")
        seen.add(interface.name)


def interface_bindings(check: Check) -> Iterator[Cause]:
    networks = {network.name: network for network in check.spec.networks}
    for i, interface in enumerate(check.spec.domain.devices.interfaces):
        field = f"{check.devices}.interfaces[{i}]"
        gone = removed(interface)
        for name in gone:
            yield invalid(f"{field}.{name}", f"{name} is no longer supported; {REMOVED[name]}")
        if not gone and not binding_of(interface):
            yield invalid(field, f"exactly one of {', '.join(BINDINGS[:-1])} and {BINDINGS[-1]} is needed")
        network = networks.get(interface.name)
        if network is not None:
            yield from _binding_fits(check, field, interface, network)


def _binding_fits(check: Check, field: str, interface: Interface, network: Network) -> Iterator[Cause]:
    row = bindingplugins.row(interface, check.config.network_bindings)
    if row is not None and row.pod_network_only and network.pod is None:
        yield invalid(f"{field}.name", f"{row.name} works only on the Pod network")
    if row is not None and row.gate and not check.config.has(row.gate):
        yield invalid(field, f"needs the feature gate {row.gate}")
    if interface.sriov is not None and network.pod is not None:
        yield invalid(f"{field}.name", "sriov works only on a multus or resourceClaim network")
    if interface.bridge is not None and network.pod is not None and not check.config.permit_bridge_on_pod_network:
        yield invalid(f"{field}.name", "the cluster does not allow bridge on the Pod network")


def binding_plugins(check: Check) -> Iterator[Cause]:
    """One that nobody has configured would leave the guest without its NIC."""
    for field, words in bindingplugins.unknown(check.spec, check.config.network_bindings):
        yield invalid(f"{check.path}.{field}", words)


def binding_options(check: Check) -> Iterator[Cause]:
    """What a binding cannot give is refused, instead of being left out."""
    for i, interface in enumerate(check.spec.domain.devices.interfaces):
        row = bindingplugins.row(interface, check.config.network_bindings)
        if row is not None:
            yield from _options_fit(f"{check.devices}.interfaces[{i}]", interface, row)


def _options_fit(field: str, interface: Interface, row: Binding) -> Iterator[Cause]:
    if interface.dhcp_options is not None and not row.answers_dhcp:
        yield invalid(f"{field}.dhcpOptions", f"with {row.name} it is somebody else who answers the guest's DHCP")
    if interface.boot_order is not None and row.device == AS_PASST:
        yield invalid(f"{field}.bootOrder", "passt hands out no boot file, so nothing boots from it")


def interface_states(check: Check) -> Iterator[Cause]:
    pods = {network.name for network in check.spec.networks if is_primary(network)}
    for i, interface in enumerate(check.spec.domain.devices.interfaces):
        field = f"{check.devices}.interfaces[{i}].state"
        if interface.state not in STATES:
            yield invalid(field, one_of(interface.state, STATES[1:]))
        elif interface.state in ("up", "down") and interface.sriov is not None:
            yield invalid(field, "an sriov interface has no link state")
        elif interface.state == "absent":
            row = bindingplugins.row(interface, check.config.network_bindings)
            if row is None or not row.pluggable:
                yield invalid(field, "only a bridge interface can be absent")
            if interface.name in pods:
                yield invalid(field, "the interface of the default network cannot be absent")


def interface_options(check: Check) -> Iterator[Cause]:
    for i, interface in enumerate(check.spec.domain.devices.interfaces):
        field = f"{check.devices}.interfaces[{i}]"
        if interface.model not in MODELS:
            yield not_supported(f"{field}.model", one_of(interface.model, MODELS[1:]))
        if interface.mac_address:
            yield from _mac(f"{field}.macAddress", interface)
        if interface.pci_address and not PCI_ADDRESS.fullmatch(interface.pci_address):
            yield invalid(f"{field}.pciAddress", f"{interface.pci_address!r} is not a PCI address such as 0000:81:01.0")
        if not 0 <= interface.acpi_index <= MOST_ACPI_INDEX:
            yield invalid(f"{field}.acpiIndex", f"{interface.acpi_index} is not between 1 and {MOST_ACPI_INDEX}")
        if interface.dhcp_options is not None:
            yield from _dhcp(check, f"{field}.dhcpOptions", interface.dhcp_options)


def _mac(field: str, interface: Interface) -> Iterator[Cause]:
    if not _MAC.fullmatch(interface.mac_address):
        yield invalid(field, f"{interface.mac_address!r} is not a MAC address of six bytes")
    elif interface.masquerade is not None and interface.mac_address.lower().replace("-", ":") == _BRIDGE_MAC:
        yield invalid(field, f"{_BRIDGE_MAC} is the MAC address of the guest's gateway")


def _dhcp(check: Check, field: str, options: DHCPOptions) -> Iterator[Cause]:
    for j, server in enumerate(options.ntp_servers):
        try:
            ipaddress.IPv4Address(decimal_octets(server))
        except ValueError:
            yield invalid(f"{field}.ntpServers[{j}]", f"{server!r} is not an IPv4 address")
    texts = [("bootFileName", options.boot_file_name), ("tftpServerName", options.tftp_server_name)]
    texts += [(f"privateOptions[{j}].value", option.value) for j, option in enumerate(options.private_options)]
    for name, text in texts:
        if len(text.encode()) > _MOST_OPTION_BYTES:
            yield invalid(f"{field}.{name}", f"an option of DHCP has room for {_MOST_OPTION_BYTES} bytes")
    numbers = [option.option for option in options.private_options]
    if any(not 224 <= number <= 254 for number in numbers):
        yield invalid(check.path, "private DHCP options must be from 224 to 254")
    if len(set(numbers)) != len(numbers):
        yield invalid(check.path, "a private DHCP option is given twice")


def interface_ports(check: Check) -> Iterator[Cause]:
    pods = {network.name for network in check.spec.networks if is_primary(network)}
    for i, interface in enumerate(check.spec.domain.devices.interfaces):
        seen: set[str] = set()
        for j, port in enumerate(interface.ports if interface.name in pods else []):
            yield from _port(f"{check.devices}.interfaces[{i}].ports[{j}]", port, seen)


def _port(field: str, port: Port, seen: set[str]) -> Iterator[Cause]:
    if port.port == 0:
        yield required(f"{field}.port", "must be given")
    elif not 0 < port.port < 65536:
        yield invalid(f"{field}.port", "must be from 1 to 65535")
    if port.protocol not in ("", "TCP", "UDP"):
        yield invalid(f"{field}.protocol", one_of(port.protocol, ("TCP", "UDP")))
    if not port.name:
        return
    if port.name in seen:
        yield duplicate(f"{field}.name", f"two ports are called {port.name!r}")
    seen.add(port.name)
    if not _PORT_NAME.fullmatch(port.name):
        yield invalid(
            f"{field}.name", f"{port.name!r} must be at most 15 lower case letters (one or more), digits and '-'"
        )
