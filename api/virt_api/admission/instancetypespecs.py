"""Admission of instance types and preferences."""

from __future__ import annotations

from collections.abc import Iterator

from virt_api.admission.causes import Cause, Refused, invalid, one_of
from virt_api.admission.objects import document_of, read_member
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.instancetype import VirtualMachineInstancetypeSpec
from virt_core.apis.preference import VirtualMachinePreferenceSpec
from virt_core.apis.quantity import parse_quantity

TOPOLOGIES = ("sockets", "cores", "threads", "spread", "any")
_OLD_TOPOLOGIES = ("preferSockets", "preferCores", "preferThreads", "preferSpread", "preferAny")
SPREADS = ("SocketsCores", "SocketsCoresThreads", "CoresThreads")


def validate_instancetype(request: AdmissionRequest) -> None:
    spec = read_member(document_of(request.object), VirtualMachineInstancetypeSpec)
    if causes := list(_instancetype(spec)):
        raise Refused(causes)


def _instancetype(spec: VirtualMachineInstancetypeSpec) -> Iterator[Cause]:
    if spec.cpu.guest < 1:
        yield invalid("spec.cpu.guest", "must be 1 or more")
    if parse_quantity(spec.memory.guest) <= 0:
        yield invalid("spec.memory.guest", "must be more than 0")
    field = "spec.memory.overcommitPercent"
    if not 0 <= spec.memory.overcommit_percent <= 100:
        yield invalid(field, "must be from 0 to 100")
    if spec.memory.overcommit_percent and spec.memory.hugepages is not None:
        yield invalid(field, "cannot be given together with hugepages")


def validate_preference(request: AdmissionRequest) -> None:
    spec = read_member(document_of(request.object), VirtualMachinePreferenceSpec)
    if causes := list(_preference(spec)):
        raise Refused(causes)


def _preference(spec: VirtualMachinePreferenceSpec) -> Iterator[Cause]:
    if spec.cpu is None:
        return
    topology, options = spec.cpu.preferred_cpu_topology, spec.cpu.spread_options
    if topology and topology not in TOPOLOGIES + _OLD_TOPOLOGIES:
        yield invalid("spec.cpu.preferredCPUTopology", one_of(topology, TOPOLOGIES))
    if options is None:
        return
    if options.across is not None and options.across not in SPREADS:
        yield invalid("spec.cpu.spreadOptions.across", one_of(options.across, SPREADS))
    if topology in ("spread", "preferSpread") and options.across == "CoresThreads" and options.ratio not in (None, 2):
        yield invalid("spec.cpu.spreadOptions.ratio", "must be 2 when across is CoresThreads")
