"""Devices of the node that a guest gets to itself: which a VMI asks for, and which the cluster permits. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from virt_core.apis import bindings
from virt_core.apis.base import from_plain
from virt_core.apis.bindings import binding_of
from virt_core.apis.configparts import PermittedHostDevices
from virt_core.apis.devices import GPU, HostDevice
from virt_core.apis.interfaces import Interface
from virt_core.apis.networks import Network
from virt_core.apis.podparts import ResourceClaim
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec


def has_node_devices(vmi: VirtualMachineInstance) -> bool:
    devices = vmi.spec.domain.devices
    return bool(devices.gpus or devices.host_devices or cards(vmi.spec))


def cards(spec: VirtualMachineInstanceSpec) -> list[Interface]:
    """The NICs that are devices of the node."""
    nics = spec.domain.devices.interfaces
    return [nic for nic in nics if binding_of(nic) in bindings.DEVICES and nic.state != "absent"]


def claimed_networks(spec: VirtualMachineInstanceSpec) -> list[Network]:
    """Those whose card comes by a resource claim."""
    named = {nic.name for nic in cards(spec)}
    return [each for each in spec.networks if each.name in named and each.resource_claim is not None]


def resources_asked(spec: VirtualMachineInstanceSpec) -> Iterator[tuple[str, str]]:
    """Path and resource of each device, below the spec. What comes by a claim is no such resource."""
    devices = spec.domain.devices
    kinds: tuple[tuple[str, Sequence[GPU | HostDevice]], ...] = (
        ("gpus", devices.gpus),
        ("hostDevices", devices.host_devices),
    )
    for kind, listed in kinds:
        for index, device in enumerate(listed):
            if not device.claim_name:
                yield f"domain.devices.{kind}[{index}].deviceName", device.device_name


def claims_asked(spec: VirtualMachineInstanceSpec) -> list[ResourceClaim]:
    """What the launcher's container uses of the Pod's claims, each once."""
    devices: list[GPU | HostDevice] = [*spec.domain.devices.gpus, *spec.domain.devices.host_devices]
    pairs = dict.fromkeys((each.claim_name, each.request_name or "") for each in devices if each.claim_name)
    networks = [each.resource_claim for each in claimed_networks(spec)]
    pairs |= dict.fromkeys((claim.claim_name, claim.request_name) for claim in networks if claim is not None)
    return [ResourceClaim(name=claim, request=request) for claim, request in pairs if claim]


def not_permitted(spec: VirtualMachineInstanceSpec, permitted: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Path and sentence of each device that the KubeVirt object does not name."""
    asked = [*resources_asked(spec)]
    known = resources_of(permitted) if asked else frozenset()
    for path, resource in asked:
        if resource not in known:
            yield path, f"{resource!r} is not a resource that permittedHostDevices of the KubeVirt object names"


def resources_of(permitted: Mapping[str, Any]) -> frozenset[str]:
    """The resources that permittedHostDevices names, whoever offers them."""
    listed = from_plain(dict(permitted), PermittedHostDevices)
    return frozenset(
        entry.resource_name for kind in (listed.pci_host_devices, listed.mediated_devices, listed.usb) for entry in kind
    )
