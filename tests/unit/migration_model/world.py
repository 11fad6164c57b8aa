"""The world in which a guest moves, as one value: what is written down, what each process knows, what the two QEMUs do.

Nothing is decided here. What a process knows may be old: it keeps what it read last until it reads again.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from framework.vmis import NODE, POD_UID, UID, handed_over
from framework.vmis import plain_vmi as sample_vmi
from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.base import decode, encode, from_plain
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.migration import VirtualMachineInstanceMigrationPhaseTransitionTimestamp as Stamp
from virt_core.apis.migrationstate import VirtualMachineInstanceMigrationState as MoveState
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_protos.launcher.v1 import launcher_pb2 as pb

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATE = NOW + timedelta(hours=1)
_NOW_TEXT, _LATE_TEXT = b"2026-01-01T00:00:00", b"2026-01-01T01:00:00"
OTHER = "node2"
SOURCE = POD_UID
JOBS, TARGETS = ("job1", "job2"), ("target1", "target2")

#: QEMU at the source: the guest runs, stands still for the switch, has left, was ended, or is not there (any more).
RUNS, STANDS, LEFT, ENDED, NONE = "runs", "stands", "left", "ended", "none"
#: A Pod whose launcher runs: one that is being deleted may still have the guest.
ALIVE = frozenset({"runs", "ends", "evicted"})
#: QEMU at the target: memory fills; libvirt ends it before all of it came.
FILLS, FALLS = "fills", "falls"


class Move(NamedTuple):
    """What the source's launcher tells."""

    uid: str
    over: bool = False
    failed: bool = False
    abort: str = ""
    held: bool = False


class Known(NamedTuple):
    """What a handler knows of its launcher."""

    launcher: str = "waiting"  # ready, gone, closed
    machine: str = NONE
    move: Move | None = None


class World(NamedTuple):
    vmi: bytes | None
    job: bytes | None
    #: What each process has read, where that is not the newest any more.
    c_vmi: bytes | None = None
    s_vmi: bytes | None = None
    t_vmi: bytes | None = None
    #: The target's Pod as virt-controller has last read it, where that is old.
    c_pod: str | None = None
    source_pod: str = "runs"  # ends, over, gone
    target_pod: str = "none"  # runs, ends, over, gone
    #: Handlers: whether the process runs, and what it knows.
    s_up: bool = True
    t_up: bool = True
    s: Known = Known("ready", RUNS)
    t: Known = Known()
    prepared: str = ""  # done, hopeless
    #: The jobs that the two ends of the way belong to.
    entrance: str = ""
    exit: str = ""
    #: The source came through this exit.
    used: bool = False
    #: Calls to the source's launcher that have not arrived yet, and calls to the target's.
    to_source: frozenset[tuple[str, str]] = frozenset()
    to_target: frozenset[str] = frozenset()
    #: The machines.
    source: str = RUNS
    target: str = NONE
    move: Move | None = None
    begun: frozenset[str] = frozenset()
    given_up: frozenset[str] = frozenset()
    #: libvirt's call at the source: copies, stopped, asked; and what is on the wire.
    call: str = ""
    connected: bool = False
    question: str = ""  # flies
    answer: str = ""  # yes
    #: What may still go wrong, and whether the guest may be lost by that.
    faults: int = 0
    excused: bool = False
    #: Whose Pod the target's is, and how many jobs there were.
    round: int = 0
    jobs: int = 1


_one: dict[bytes, bytes] = {}


_PHASES = ("Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running")


def plain_job(job: Job) -> Job:
    """Without what nobody decides on: whether phases were told one by one, and what the VMI says as well."""
    phase = job.status.phase
    passed = _PHASES[: _PHASES.index(phase) + 1] if phase in _PHASES else ()
    stamps = [Stamp(phase=each, phase_transition_timestamp="2026-01-01T00:00:00Z") for each in passed]
    return replace(job, status=replace(job.status, phase_transition_timestamps=stamps, migration_state=None))


def plain_vmi(vmi: VirtualMachineInstance) -> VirtualMachineInstance:
    """Without the words; and once it is over or goes, without the course of its move."""
    move = vmi.status.migration_state
    if move is None:
        return vmi
    if is_final(vmi) or is_terminating(vmi):
        plain = MoveState(migration_uid=move.migration_uid, target_node=move.target_node, target_pod=move.target_pod)
        plain = replace(plain, source_pod=move.source_pod, completed=move.completed, failed=move.failed)
    else:
        plain = replace(move, failure_reason="why" if move.failure_reason else "")
    return replace(vmi, status=replace(vmi.status, migration_state=plain))


def normal(obj: Any) -> bytes:
    """The same object for the same content, so that worlds are soon compared. There is no time in the search: a wait
    may end at any moment."""
    obj = plain_job(obj) if isinstance(obj, Job) else plain_vmi(obj)
    data = encode(obj).replace(_LATE_TEXT, _NOW_TEXT)
    return _one.setdefault(data, data)


@cache
def vmi_of(data: bytes) -> VirtualMachineInstance:
    return decode(data, VirtualMachineInstance)


@cache
def job_of(data: bytes) -> Job:
    return decode(data, Job)


def first_vmi() -> VirtualMachineInstance:
    return handed_over("Running", spec=_spec(), status={"nodeName": NODE, "activePods": {SOURCE: NODE}})


def _spec() -> dict[str, Any]:
    """No grace: a guest that must end does so at once. Its image has a digest, so nothing has to be compared first."""
    volumes = [{"name": "root", "containerDisk": {"image": f"example.internal/guest@sha256:{'0' * 64}"}}]
    return sample_vmi()["spec"] | {"terminationGracePeriodSeconds": 0, "volumes": volumes}


def first_job(number: int = 0) -> Job:
    meta = {"name": "move", "namespace": "default", "uid": JOBS[number], "finalizers": [names.FINALIZER_MIGRATION]}
    return from_plain({"metadata": meta, "spec": {"vmiName": "vm"}}, Job)


_STATES = {
    RUNS: (pb.DOMAIN_STATE_RUNNING, ""),
    STANDS: (pb.DOMAIN_STATE_PAUSED, "Migration"),
    FILLS: (pb.DOMAIN_STATE_PAUSED, "Migration"),
    FALLS: (pb.DOMAIN_STATE_SHUTTING_DOWN, ""),
    LEFT: (pb.DOMAIN_STATE_SHUTOFF, "Migrated"),
    ENDED: (pb.DOMAIN_STATE_SHUTOFF, "Destroyed"),
    NONE: (pb.DOMAIN_STATE_ABSENT, ""),
}


@cache
def domain_of(machine: str, move: Move | None) -> pb.Domain:
    state, reason = _STATES[machine]
    told = None
    if move is not None:
        told = pb.Move(uid=move.uid, started_us=1, failed=move.failed, abort=move.abort, held=move.held)
        told.ended_us, told.reason = int(move.over), "it failed" if move.failed else ""
    return pb.Domain(state=state, reason=reason, move=told)


@cache
def pod_of(uid: str, state: str, job: str) -> Pod:
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "vm", "uid": UID}
    labels = {names.LABEL_APP: names.APP_LAUNCHER} | ({names.LABEL_MIGRATION_JOB_UID: job} if job else {})
    meta: dict[str, Any] = {"name": uid, "namespace": "default", "uid": uid, "labels": labels}
    meta |= {"ownerReferences": [owner | {"controller": True}], "creationTimestamp": "2026-01-01T00:00:00Z"}
    if state in ("ends", "evicted"):
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ended = {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:00Z"}}
    over, good = state in ("over", "left"), state == "left"
    status = {
        "phase": ("Succeeded" if good else "Failed") if over else "Running",
        "containerStatuses": [{"name": "compute", "state": ended if over else {"running": {}}}],
    }
    node = NODE if uid == SOURCE else OTHER
    return from_plain({"metadata": meta, "spec": {"nodeName": node}, "status": status}, Pod)
