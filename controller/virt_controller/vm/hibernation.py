"""The state of a VM's machine, step by step: a claim comes to the machine, takes its state, and the next start goes on
from there. Pure.

What the VM's status says is the only thing that counts: a file in a claim that is not named there is never resumed. The
launcher sees to it that a state which is named is resumed once at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from virt_controller.vm.facts import has_run
from virt_core.apis import hibernation as words
from virt_core.apis import names
from virt_core.apis.base import encode
from virt_core.apis.domain import Machine
from virt_core.apis.facts import is_final, is_terminating, run_strategy
from virt_core.apis.hibernation import Resumption
from virt_core.apis.hibernation import VirtualMachineHibernation as State
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.podvolumes import PersistentVolumeClaimSpec, VolumeResourceRequirements
from virt_core.apis.quantity import parse_bytes
from virt_core.apis.registry import owner_reference
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.apis.vmistatus import VolumeStatus
from virt_core.apis.volumes import MemoryDumpVolumeSource, Volume, claim_of
from virt_core.kube.patch import op, pointer
from virt_core.runtime.times import parse_rfc3339, rfc3339

Vmi = VirtualMachineInstance | None
Operations = list[dict[str, Any]]

#: How long the claim may take to reach the machine. The launcher has a deadline of its own for writing.
ATTACH_S = 300.0
#: What a state has beside the memory itself, and what a filesystem takes of a claim.
_BESIDE = 100 << 20
_OVERHEAD = 0.055
_MIB = 1 << 20
_BEGUN = frozenset({names.VOLUME_DUMPING, names.VOLUME_DUMPED, names.VOLUME_DUMP_FAILED})
_ENDED_EARLY = "the machine ended before its state was saved"


@dataclass(frozen=True, slots=True)
class World:
    """What a state depends on, beside VM and VMI."""

    #: Of the VM's spec with its instance type; empty when it cannot be had now.
    digest: str = ""
    #: UIDs of the claims of its disks, by the volume.
    claims: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    state: State | None
    #: To be made before anything else.
    claim: PersistentVolumeClaim | None = None
    vmi: Operations = field(default_factory=list)
    #: The VM shall not start by itself.
    halt: bool = False
    #: A claim of ours that nobody needs any more.
    drop: str = ""
    #: What people read: the type of the Event, its reason, a sentence.
    note: tuple[str, str, str] | None = None
    wait_s: float = 0.0


def plan(vm: VirtualMachine, vmi: Vmi, world: Callable[[], World], now: datetime) -> Plan | None:
    """None: nothing to do."""
    state = vm.status.hibernation
    if state is None or state.phase not in _STEPS:
        return None
    found = _STEPS[state.phase](vm, vmi, state, world, now)
    changed = found.state != state or found.vmi or found.drop or found.wait_s
    return found if changed else None


def _request(vm: VirtualMachine, vmi: Vmi, state: State, world: Callable[[], World], now: datetime) -> Plan:
    if vmi is None or is_final(vmi) or is_terminating(vmi) or vmi.metadata.uid != state.vmi_uid:
        return _failed(state, None, _ENDED_EARLY)
    seen = world()
    if not seen.digest:
        return Plan(state, wait_s=5.0)
    state = replace(
        state,
        phase=words.SAVING,
        start_timestamp=rfc3339(now),
        spec_digest=seen.digest,
        claims=dict(seen.claims),
        machine_type=vmi.status.machine.type if vmi.status.machine is not None else "",
        mac_addresses={each.name: each.mac for each in vmi.status.interfaces if each.name and each.mac},
    )
    if state.claim_name:
        return Plan(state, vmi=_with(vmi, state), wait_s=ATTACH_S)
    claim = make_claim(vm, vmi, f"hibernated-{vm.metadata.name[:40]}-{vmi.metadata.uid[:8]}")
    state = replace(state, claim_name=claim.metadata.name, owned=True)
    return Plan(state, claim=claim, vmi=_with(vmi, state), wait_s=ATTACH_S)


def _save(vm: VirtualMachine, vmi: Vmi, state: State, world: Callable[[], World], now: datetime) -> Plan:
    del world
    if vmi is None or vmi.metadata.uid != state.vmi_uid:
        return _failed(state, None, _ENDED_EARLY)
    status = _status(vmi)
    info = status.memory_dump_volume if status is not None else None
    if is_final(vmi):
        if status is not None and status.phase == names.VOLUME_DUMPED and info is not None:
            saved = replace(
                state,
                phase=words.SAVED,
                file_name=info.target_file_name,
                end_timestamp=info.end_timestamp,
                message="",
            )
            text = f"the machine's state is in claim {state.claim_name}; the next start goes on from it"
            halt = run_strategy(vm) == names.STRATEGY_ALWAYS
            return Plan(saved, halt=halt, note=(names.EVENT_NORMAL, names.EVENT_HIBERNATED, text))
        return _failed(state, None, (status.message if _has_failed(status) and status else "") or _ENDED_EARLY)
    if status is not None and _has_failed(status):
        return _failed(state, vmi, status.message or "the state could not be written")
    if status is not None and status.phase in _BEGUN:
        return Plan(state)
    left = _left_s(state, now)
    if left <= 0:
        why = status.message if status is not None and status.message else "no node brings it"
        return _failed(state, vmi, f"claim {state.claim_name} is not in the Pod after {ATTACH_S:.0f} s: {why}")
    return Plan(state, vmi=_with(vmi, state), wait_s=left)


def _keep(vm: VirtualMachine, vmi: Vmi, state: State, world: Callable[[], World], now: datetime) -> Plan:
    """What the VMI that goes on from it says: only one that ran has used it up."""
    del now
    if state.copied and not state.spec_digest and not vm.status.restore_in_progress:
        # From a restore: from now on it is bound to the spec and the claims that came with it.
        seen = world()
        state = replace(state, spec_digest=seen.digest, claims=dict(seen.claims))
    if vmi is None or not resumes(vmi, state):
        return Plan(replace(state, phase=words.SAVED))
    if has_run(vmi):
        return Plan(replace(state, phase=words.RESUMED, owned=False), drop=state.claim_name if state.owned else "")
    return Plan(replace(state, phase=words.SAVED if is_final(vmi) else words.RESUMING))


def _discard(vm: VirtualMachine, vmi: Vmi, state: State, world: Callable[[], World], now: datetime) -> Plan:
    del vm, vmi, world, now
    return Plan(None, drop=state.claim_name if state.owned else "")


def _over(vm: VirtualMachine, vmi: Vmi, state: State, world: Callable[[], World], now: datetime) -> Plan:
    del vm, world, now
    return Plan(state, vmi=_without(vmi))


def _failed(state: State, vmi: Vmi, why: str) -> Plan:
    failed = replace(state, phase=words.FAILED, message=why, owned=False)
    note = (names.EVENT_WARNING, names.REASON_STATE_NOT_SAVED, f"the machine was not hibernated: {why}")
    return Plan(failed, vmi=_without(vmi), drop=state.claim_name if state.owned else "", note=note)


_STEPS: dict[str, Callable[[VirtualMachine, Vmi, State, Callable[[], World], datetime], Plan]] = {
    words.REQUESTED: _request,
    words.SAVING: _save,
    words.SAVED: _keep,
    words.RESUMING: _keep,
    words.FAILED: _over,
    words.DISCARDED: _discard,
}


def misfit(state: State, world: World) -> str:
    """Why the VM as it is now cannot go on from its state; empty: it can."""
    if state.spec_digest and state.spec_digest != world.digest:
        return (
            "spec.template changed since the state was saved (domain, volumes or networks);"
            " put it back, or start the VM with --discard-state to boot it afresh"
        )
    other = sorted(name for name, uid in state.claims.items() if world.claims.get(name) != uid)
    if other:
        return (
            f"these volumes are on other claims than when the state was saved: {', '.join(other)};"
            " start the VM with --discard-state to boot it afresh"
        )
    return ""


def resuming(spec: VirtualMachineInstanceSpec, state: State) -> dict[str, str]:
    """Makes a VMI's spec that of the machine that was saved. The annotations that go with it."""
    if state.machine_type:
        spec.domain.machine = Machine(type=state.machine_type)
    devices, known = spec.domain.devices, state.mac_addresses
    devices.interfaces = [replace(nic, mac_address=known.get(nic.name, nic.mac_address)) for nic in devices.interfaces]
    told = Resumption(claim=state.claim_name, file=state.file_name, copied=state.copied)
    return {names.ANNOTATION_RESUME_FROM: encode(told).decode()}


def resumes(vmi: VirtualMachineInstance, state: State) -> bool:
    try:
        found = words.resumption(vmi)
    except ValueError:
        return False
    return found is not None and found.file == state.file_name


def disk_claims(spec: VirtualMachineInstanceSpec, uid: Callable[[str], str]) -> dict[str, str]:
    """By the volume: the UID of the claim, as `uid` knows it by the claim's name."""
    found = ((volume.name, claim_of(volume)) for volume in spec.volumes if volume.memory_dump is None)
    return {name: uid(claim) for name, claim in found if claim}


def make_claim(vm: VirtualMachine, vmi: VirtualMachineInstance, name: str) -> PersistentVolumeClaim:
    """On the cluster's default class; it goes with the VM."""
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name,
            namespace=vm.metadata.namespace,
            labels={names.LABEL_APPLY_STORAGE_PROFILE: "true"},
            owner_references=[owner_reference(vm)],
        ),
        spec=PersistentVolumeClaimSpec(
            access_modes=[names.ACCESS_ONE_NODE],
            resources=VolumeResourceRequirements(requests={"storage": str(needed(vmi))}),
            volume_mode=names.VOLUME_MODE_FILESYSTEM,
        ),
    )


def needed(vmi: VirtualMachineInstance) -> int:
    """Bytes that the claim of a state must have."""
    memory = vmi.spec.domain.memory
    given = memory.guest if memory is not None and memory.guest is not None else None
    if given is None:
        told = vmi.status.memory
        given = told.guest_current if told is not None else vmi.spec.domain.resources.requests.get("memory", 0)
    return -(-int((parse_bytes(given or 0) + _BESIDE) * (1 + _OVERHEAD)) // _MIB) * _MIB


def with_state_volume(vmi: VirtualMachineInstance, claim: str, kind: str) -> Operations:
    """Nothing when it is there, or when something of an earlier one is left."""
    if _has(vmi) or _status(vmi) is not None or vmi.status.phase != names.PHASE_RUNNING:
        return []
    volume = Volume(
        name=names.VOLUME_MACHINE_STATE, memory_dump=MemoryDumpVolumeSource(claim_name=claim, hotpluggable=True)
    )
    return [
        op.add(pointer("metadata", "annotations", names.ANNOTATION_SAVE_STATE), kind),
        op.add("/spec/volumes", [*vmi.spec.volumes, volume]),
    ]


def without_state_volume(vmi: Vmi) -> Operations:
    if vmi is None or not _has(vmi):
        return []
    kept = [volume for volume in vmi.spec.volumes if volume.name != names.VOLUME_MACHINE_STATE]
    asked = names.ANNOTATION_SAVE_STATE in vmi.metadata.annotations
    path = pointer("metadata", "annotations", names.ANNOTATION_SAVE_STATE)
    return [*([op.remove(path)] if asked else []), op.add("/spec/volumes", kept)]


def _with(vmi: VirtualMachineInstance, state: State) -> Operations:
    return with_state_volume(vmi, state.claim_name, names.STATE_HIBERNATE)


_without = without_state_volume


def _has(vmi: VirtualMachineInstance) -> bool:
    return any(volume.name == names.VOLUME_MACHINE_STATE for volume in vmi.spec.volumes)


def _status(vmi: VirtualMachineInstance) -> VolumeStatus | None:
    return next((each for each in vmi.status.volume_status if each.name == names.VOLUME_MACHINE_STATE), None)


def _has_failed(status: VolumeStatus | None) -> bool:
    return status is not None and status.phase == names.VOLUME_DUMP_FAILED


def _left_s(state: State, now: datetime) -> float:
    begun = parse_rfc3339(state.start_timestamp) if state.start_timestamp else now
    return (begun + timedelta(seconds=ATTACH_S) - now).total_seconds()
