"""The rules of a VM's spec, beyond those of its machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from virt_api.admission.causes import Cause, invalid, one_of, required
from virt_api.admission.defaults.sizes import page_size
from virt_api.admission.vm.base import VMCheck, VMRule
from virt_core.apis import names
from virt_core.apis.quantity import QuantityError, parse_bytes
from virt_core.apis.vmi import VirtualMachineInstanceSpec

#: Those that need no feature gate.
RUN_STRATEGIES = (
    names.STRATEGY_HALTED,
    names.STRATEGY_MANUAL,
    names.STRATEGY_ALWAYS,
    names.STRATEGY_RERUN_ON_FAILURE,
    names.STRATEGY_ONCE,
)
_GIB = 1 << 30


def running(check: VMCheck) -> Iterator[Cause]:
    field = f"{check.path}.running"
    if check.spec.running is not None and check.spec.run_strategy is not None:
        yield invalid(field, "running and runStrategy cannot be given together")
    if check.spec.running is None and check.spec.run_strategy is None:
        yield invalid(field, "either running or runStrategy is needed")


def run_strategy(check: VMCheck) -> Iterator[Cause]:
    strategy = check.spec.run_strategy
    if strategy is None or strategy in RUN_STRATEGIES:
        return
    if strategy != names.STRATEGY_WAIT_AS_RECEIVER:
        yield invalid(f"{check.path}.runStrategy", one_of(strategy, RUN_STRATEGIES))
    elif not check.config.has("DecentralizedLiveMigration"):
        yield invalid(f"{check.path}.runStrategy", f"{strategy} needs the feature gate DecentralizedLiveMigration")


def data_volume_templates(check: VMCheck) -> Iterator[Cause]:
    """One mistake of each template: the later ones mostly follow from the first."""
    used = {v.data_volume.name for v in check.machine.volumes if v.data_volume is not None}
    used |= {v.persistent_volume_claim.claim_name for v in check.machine.volumes if v.persistent_volume_claim}
    for i, entry in enumerate(check.spec.data_volume_templates):
        field = f"{check.path}.dataVolumeTemplate[{i}]"
        name = entry.metadata.name if entry.metadata else ""
        cause = _data_volume(field, name, entry.spec)
        if cause is None and name not in used:
            cause = required(field, f"no volume of the template uses {name!r}")
        if cause is not None:
            yield cause


def _data_volume(field: str, name: str, spec: dict[str, Any]) -> Cause | None:
    claims = [spec[key] for key in ("pvc", "storage") if isinstance(spec.get(key), dict)]
    if not name:
        return required(f"{field}.name", "must be given")
    if len(claims) != 1:
        return invalid(f"{field}.PVC.Storage", "exactly one of pvc and storage is needed")
    foreign = any(claims[0].get(key) is not None for key in ("dataSource", "dataSourceRef"))
    source, reference = spec.get("source"), spec.get("sourceRef")
    if foreign and (source is not None or reference is not None):
        return invalid(f"{field}.source", "cannot be given for a claim with a data source")
    if not foreign and source is None and reference is None:
        return invalid(f"{field}.source.sourceRef", "source, sourceRef or a data source of the claim is needed")
    if isinstance(source, dict) and sum(value is not None for value in source.values()) != 1:
        return invalid(f"{field}.source", "exactly one kind of source is needed")
    return None


def sockets(check: VMCheck) -> Iterator[Cause]:
    cpu = check.spec.template.spec.domain.cpu if check.spec.template else None
    if check.config.live_update and cpu is not None and cpu.max_sockets and cpu.sockets > cpu.max_sockets:
        yield invalid(f"{check.template}.spec.domain.cpu.sockets", "must not exceed maxSockets")


def growing_memory(check: VMCheck) -> Iterator[Cause]:
    """Who names a maxGuest wants to add memory later, so that must be possible."""
    memory = check.spec.template.spec.domain.memory if check.spec.template else None
    if not check.config.live_update or memory is None or memory.max_guest is None:
        return
    for problem in _obstacles(check.machine):
        yield invalid(f"{check.template}.spec.domain.memory.guest", problem)


def _obstacles(spec: VirtualMachineInstanceSpec) -> Iterator[str]:
    domain = spec.domain
    if domain.cpu is not None and domain.cpu.realtime is not None:
        yield "memory cannot be added to a realtime machine"
    if domain.cpu is not None and domain.cpu.numa is not None and domain.cpu.numa.guest_mapping_passthrough is not None:
        yield "memory cannot be added when the guest sees the node's NUMA topology"
    if domain.launch_security is not None:
        yield "memory cannot be added to a machine with encrypted memory"
    if spec.architecture not in ("", "amd64"):
        yield f"memory cannot be added on {spec.architecture}"
    yield from _sizes(spec)


def _sizes(spec: VirtualMachineInstanceSpec) -> Iterator[str]:
    memory = spec.domain.memory
    if memory is None or memory.guest is None or memory.max_guest is None:
        yield "maxGuest needs guest"
        return
    try:
        guest, most = parse_bytes(memory.guest), parse_bytes(memory.max_guest)
    except QuantityError as error:
        yield str(error)
        return
    page = page_size(memory)
    if guest > most:
        yield "must not exceed maxGuest"
    if guest % page or most % page:
        yield f"guest and maxGuest must be multiples of {page >> 20}Mi"
    if guest < _GIB:
        yield "memory cannot be added to a machine with less than 1Gi"


VM_RULES: tuple[VMRule, ...] = (running, run_strategy, data_volume_templates, sockets, growing_memory)
