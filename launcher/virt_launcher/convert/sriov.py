"""Network cards that are virtual functions of a card of the node: which one is whose.

The Pod knows it in one of three ways. A file tells of each network the device that its plugin took: virt-controller
writes it from what Multus says of the Pod, and the node brings it in, a moment after the start. Where only one card is
of a resource, the variable of the device plugin says the same at once. Devices of a resource claim are told of by the
claim's driver (`claimed.py`).

MAC and VLAN are not set here: whoever owns the card does that, when the Pod gets the function.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from virt_core.apis import names
from virt_core.apis.bindings import SRIOV, binding_of
from virt_core.apis.interfaces import Interface
from virt_core.apis.networks import Network
from virt_launcher.convert.context import Context
from virt_launcher.convert.pci import parse_address
from virt_launcher.domain.devices import CARD_ALIAS, HostAddress, HostDev
from virt_launcher.errors import InvalidVMIError, WrongStateError

_INTERFACES = "spec.domain.devices.interfaces"
_MAX_BYTES = 1 << 16


def cards(context: Context) -> list[HostDev]:
    """Raises InvalidVMIError, and WrongStateError while the Pod does not know it yet."""
    listed = [(f"{_INTERFACES}[{index}]", nic) for index, nic in enumerate(context.vmi.spec.domain.devices.interfaces)]
    wanted = [(path, nic) for path, nic in listed if binding_of(nic) == SRIOV and nic.state != "absent"]
    known = _Known(context, [nic for _, nic in wanted])
    return [_card(path, nic, known.address(path, nic)) for path, nic in wanted]


def _card(path: str, nic: Interface, address: str) -> HostDev:
    place = parse_address(address, path)
    source = HostAddress(domain=place.domain, bus=place.bus, slot=place.slot, function=place.function)
    card = HostDev(mode="subsystem", type="pci", managed=False, source=source, alias=f"{CARD_ALIAS}{nic.name}")
    card.boot_order = nic.boot_order
    # Only a boot by network needs it.
    card.rom_enabled = None if nic.boot_order else False
    card.acpi_index = nic.acpi_index or None
    if nic.pci_address:
        card.address = parse_address(nic.pci_address, f"{path}.pciAddress")
    return card


class _Known:
    """What the Pod tells of the cards of a machine."""

    def __init__(self, context: Context, nics: list[Interface]) -> None:
        self._context = context
        self._networks = {network.name: network for network in context.vmi.spec.networks}
        self._told = told(context.network_info)
        self._users = Counter(self._resource(nic.name) for nic in nics)

    def address(self, path: str, nic: Interface) -> str:
        network = self._networks.get(nic.name)
        if network is not None and network.resource_claim is not None:
            return self._claimed(path, network)
        if address := self._told.get(nic.name) or self._given(nic.name):
            return address
        raise WrongStateError(f"{path}: the Pod does not say yet which device it got for the network {nic.name!r}")

    def _claimed(self, path: str, network: Network) -> str:
        from virt_launcher.convert.claimed import claimed_device

        assert network.resource_claim is not None
        claim, request = network.resource_claim.claim_name, network.resource_claim.request_name
        claims = self._context.vmi.spec.resource_claims
        prefix, address = claimed_device(path, claim, request, claims, self._context.device_metadata)
        if prefix != names.ENV_PREFIX_PCI:
            raise InvalidVMIError(path, f"the claim {claim!r} gives no PCI device")
        return address

    def _resource(self, network: str) -> str:
        return self._context.environment.get(names.network_resource_env(network), "")

    def _given(self, network: str) -> str:
        """Of several cards of one resource nobody knows by this which is on which network."""
        resource = self._resource(network)
        if not resource or self._users[resource] != 1:
            return ""
        text = self._context.environment.get(names.resource_env(names.ENV_PREFIX_NETWORK_DEVICE, resource), "")
        addresses = [address.strip() for address in text.split(",") if address.strip()]
        return addresses[0] if len(addresses) == 1 else ""


def told(file: Path) -> dict[str, str]:
    """PCI addresses by network. A file that is not there, empty or torn tells nothing: it is written later, or anew."""
    try:
        with file.open("rb") as data:
            listed = json.loads(data.read(_MAX_BYTES) or b"{}")["interfaces"]
        return {each["network"]: each["deviceInfo"]["pci"]["pci-address"] for each in listed}
    except (OSError, ValueError, LookupError, TypeError):
        return {}
