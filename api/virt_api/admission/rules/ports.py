"""Rules about ranges of ports."""

from __future__ import annotations

from collections.abc import Iterator

from virt_api.admission.causes import Cause, invalid, one_of
from virt_api.admission.rules.base import Check
from virt_core.apis.interfaces import Interface, PortRange

GATE = "PortRangesSpec"
MAX_RANGES = 10
PROTOCOLS = ("TCP", "UDP")
_PORTS = range(1, 65536)


def port_ranges(check: Check) -> Iterator[Cause]:
    for i, interface in enumerate(check.spec.domain.devices.interfaces):
        if not interface.port_ranges:
            continue
        field = f"{check.devices}.interfaces[{i}].portRanges"
        if not check.config.has(GATE):
            yield invalid(field, f"needs the feature gate {GATE}")
            continue
        yield from _whole(field, interface)
        if len(interface.port_ranges) > MAX_RANGES:
            yield invalid(field, f"at most {MAX_RANGES} ranges can be given")
            continue
        for j, wanted in enumerate(interface.port_ranges):
            yield from _range(f"{field}[{j}]", wanted, interface.port_ranges[:j])


def _whole(field: str, interface: Interface) -> Iterator[Cause]:
    if interface.ports:
        yield invalid(field, "ports and portRanges cannot be given together")
    if interface.masquerade is None:
        yield invalid(field, "portRanges work only with masquerade")


def _range(field: str, wanted: PortRange, before: list[PortRange]) -> Iterator[Cause]:
    if wanted.protocol not in PROTOCOLS:
        yield invalid(f"{field}.protocol", one_of(wanted.protocol, PROTOCOLS))
    if wanted.start not in _PORTS or wanted.end not in _PORTS or wanted.start > wanted.end:
        yield invalid(field, f"{wanted.start} to {wanted.end} is not a range of ports from 1 to 65535")
    elif any(
        other.protocol == wanted.protocol and other.start <= wanted.end and wanted.start <= other.end
        for other in before
    ):
        yield invalid(field, "overlaps another range of the same protocol")
