"""Rules about devices that come from resource claims, wherever in the machine they are used."""

from __future__ import annotations

from collections.abc import Iterator

from virt_api.admission.causes import Cause, duplicate, invalid
from virt_api.admission.rules.base import Check


def networks_by_claim(check: Check) -> Iterator[Cause]:
    """They are real devices: they need a NIC that takes one, and do not mix with multus."""
    claimed = {network.name for network in check.spec.networks if network.resource_claim is not None}
    if not claimed:
        return
    if any(network.multus is not None for network in check.spec.networks):
        yield invalid(f"{check.path}.networks", "resourceClaim and multus networks cannot be given together")
    for i, interface in enumerate(check.spec.domain.devices.interfaces):
        if interface.name in claimed and interface.sriov is None and interface.binding is None:
            yield invalid(f"{check.devices}.interfaces[{i}]", "a resourceClaim network needs sriov or a binding")


def claimed_once(check: Check) -> Iterator[Cause]:
    """Devices of one kind are compared where that kind is checked; here GPUs, host devices and networks."""
    seen: dict[tuple[str, str], str] = {}
    for kind, field, pair in _pairs(check):
        first = seen.setdefault(pair, kind)
        if first != kind:
            yield duplicate(field, f"request {pair[1]!r} of claim {pair[0]!r} is used twice")
    networks = [pair for kind, _, pair in _pairs(check) if kind == "networks"]
    if len(set(networks)) != len(networks):
        yield duplicate(f"{check.path}.networks", "two networks use the same request of a claim")


def _pairs(check: Check) -> Iterator[tuple[str, str, tuple[str, str]]]:
    devices = check.spec.domain.devices
    for i, gpu in enumerate(devices.gpus):
        if gpu.claim_name and gpu.request_name:
            yield "gpus", f"{check.devices}.gpus[{i}]", (gpu.claim_name, gpu.request_name)
    for i, device in enumerate(devices.host_devices):
        if device.claim_name and device.request_name:
            yield "hostDevices", f"{check.devices}.hostDevices[{i}]", (device.claim_name, device.request_name)
    for i, network in enumerate(check.spec.networks):
        claim = network.resource_claim
        if claim is not None and claim.claim_name and claim.request_name:
            yield "networks", f"{check.path}.networks[{i}].resourceClaim", (claim.claim_name, claim.request_name)
