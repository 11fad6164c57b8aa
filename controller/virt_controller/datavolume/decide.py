"""What becomes of a DataVolume: its claim, its Pod, its phase, its conditions. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
from msgspec.structs import replace

from virt_controller.datavolume import claims
from virt_controller.datavolume.plan import kind_of
from virt_controller.notes import Note
from virt_core.apis import datavolume as dv
from virt_core.apis import importplan, names
from virt_core.apis.base import decode
from virt_core.apis.datavolume import DataVolume, DataVolumeSpec, DataVolumeStatus
from virt_core.apis.facts import is_terminating
from virt_core.apis.importplan import ImportReport, Progress
from virt_core.apis.meta import Condition
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.kube.conditions import set_condition
from virt_core.runtime.times import parse_rfc3339

#: The pause before the importer is started anew doubles with each time.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 3.0, 300.0
#: While it works its progress is asked for.
POLL_S = 2.0
UNKNOWN, WHOLE = "N/A", "100.0%"

_PHASES = {
    importplan.CLONE: (dv.CLONE_SCHEDULED, dv.CLONE_IN_PROGRESS),
    importplan.UPLOAD: (dv.UPLOAD_SCHEDULED, dv.UPLOAD_READY),
}
_IMPORT = (dv.IMPORT_SCHEDULED, dv.IMPORT_IN_PROGRESS)
#: Reasons of the condition Running that our Events use too.
REASON_COMPLETED, REASON_ERROR, REASON_PENDING = "Completed", "Error", "Pending"
REASON_EXISTS, REASON_IN_USE, REASON_NO_SOURCE = "ErrResourceExists", "CloneSourceInUse", "CloneWithoutSource"


@dataclass(frozen=True, slots=True)
class World:
    """What there is around a DataVolume."""

    claim: PersistentVolumeClaim | None = None
    pod: Pod | None = None
    progress: Progress | None = None
    #: The claim is bound when its first user comes.
    first_consumer: bool = False
    #: The claim that is copied.
    source: PersistentVolumeClaim | None = None
    #: Who uses that claim now, or the one that is to be filled, if it was there first.
    users: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    status: DataVolumeStatus
    create_claim: bool = False
    adopt_claim: bool = False
    create_pod: bool = False
    delete_pod: bool = False
    #: What the claim's annotations say of the Pod.
    annotations: dict[str, str] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    recheck_s: float | None = None


def decide(volume: DataVolume, spec: DataVolumeSpec, world: World, now: datetime) -> Decision:
    if volume.status.phase in (dv.DONE, dv.FAILED):
        return _over(volume, world)
    state = _State(volume, now)
    if not kind_of(spec):
        return state.failed(importplan.INVALID, "spec.source is of a kind that Virtpod's importer does not have")
    if (elsewhere := _elsewhere(volume, spec)) is not None:
        return state.failed(importplan.INVALID, elsewhere)
    if world.claim is None:
        return _without_claim(state, spec, world)
    if not claims.is_ours(volume, world.claim):
        return _foreign_claim(state, world.claim)
    if is_terminating(world.claim):
        return Decision(state.phase(dv.PENDING, bound=(names.FALSE, REASON_PENDING, "the claim is being deleted")))
    if claims.is_populated(volume, world.claim) or world.claim.metadata.annotations.get(dv.KEY_POD_PHASE) == dv.DONE:
        return state.done(delete_pod=world.pod is not None)
    if world.pod is not None and not is_terminating(world.pod):
        return _with_pod(state, spec, world.pod, world)
    return _before_pod(state, spec, world)


def _elsewhere(volume: DataVolume, spec: DataVolumeSpec) -> str | None:
    """A Pod sees the claims of its own namespace only, and so does our importer."""
    copied = spec.source.pvc if spec.source is not None else None
    if copied is None or copied.namespace in ("", volume.metadata.namespace):
        return None
    return (
        f"spec.source.pvc.namespace: Virtpod's importer copies claims of the namespace {volume.metadata.namespace} only"
    )


def _over(volume: DataVolume, world: World) -> Decision:
    """A Pod that failed stays to be looked at."""
    left = world.pod is not None and volume.status.phase == dv.DONE and not is_terminating(world.pod)
    return Decision(volume.status, delete_pod=left)


def _without_claim(state: _State, spec: DataVolumeSpec, world: World) -> Decision:
    if kind_of(spec) == importplan.CLONE and world.source is None:
        return state.waits(REASON_NO_SOURCE, "there is no claim to copy yet")
    if claims.disk_size(spec, world.source) <= 0:
        return state.failed(importplan.INVALID, "spec must say how large the disk is: resources.requests.storage")
    return Decision(state.phase(dv.PENDING, bound=(names.FALSE, REASON_PENDING, "the claim is being made")), True)


def _foreign_claim(state: _State, claim: PersistentVolumeClaim) -> Decision:
    volume = state.volume
    welcome = claims.is_populated(volume, claim) or volume.metadata.annotations.get(dv.KEY_ADOPTION) == "true"
    if welcome and not any(ref.controller for ref in claim.metadata.owner_references):
        return dataclasses.replace(state.done(), adopt_claim=True)
    words = f"there is a claim {claim.metadata.name} already, and it is not this DataVolume's"
    return state.waits(REASON_EXISTS, words)


def _before_pod(state: _State, spec: DataVolumeSpec, world: World) -> Decision:
    claim = world.claim
    assert claim is not None
    bound = claim.status.phase == "Bound"
    if not bound and not (world.first_consumer and claims.binds_now(state.volume)):
        waiting = world.first_consumer and names.ANNOTATION_SELECTED_NODE not in claim.metadata.annotations
        words = "the claim waits for its first user" if waiting else "the claim is not bound yet"
        phase = dv.FIRST_CONSUMER if waiting else dv.PENDING
        return Decision(state.phase(phase, bound=(names.FALSE, claim.status.phase or REASON_PENDING, words)))
    if world.users:
        what = "the claim to copy" if kind_of(spec) == importplan.CLONE else "the claim"
        return state.waits(REASON_IN_USE, f"{what} is used by {', '.join(world.users)}")
    if kind_of(spec) == importplan.CLONE and world.source is None:
        return state.waits(REASON_NO_SOURCE, "the claim to copy is gone")
    scheduled = _PHASES.get(kind_of(spec), _IMPORT)[0]
    status = state.phase(
        scheduled, running=(names.FALSE, REASON_PENDING, "the importer is being started"), bound=_BOUND
    )
    return Decision(status, create_pod=True, annotations={dv.KEY_POD_PHASE: "Pending", dv.KEY_POD_READY: "false"})


def _with_pod(state: _State, spec: DataVolumeSpec, pod: Pod, world: World) -> Decision:
    if pod.status.phase in ("Succeeded", "Failed"):
        return _ended(state, pod)
    scheduled, going = _PHASES.get(kind_of(spec), _IMPORT)
    runs, said = pod.status.phase == "Running", pod.status.phase or "Pending"
    ready = runs and (kind_of(spec) != importplan.UPLOAD or world.progress is not None)
    words = "" if runs else _why_pending(pod)
    running = (names.TRUE, "Pod is running", "") if runs else (names.FALSE, said, words)
    bound = _BOUND if world.claim is not None and world.claim.status.phase == "Bound" else None
    status = state.phase(going if ready else scheduled, running=running, bound=bound)
    status = replace(status, progress=_percent(world.progress, status.progress))
    annotations = {dv.KEY_POD_PHASE: said, dv.KEY_POD_READY: "true" if ready else "false"}
    return Decision(status, annotations=annotations, recheck_s=POLL_S)


def _percent(progress: Progress | None, before: str) -> str:
    """It does not go back because nobody answered for a moment."""
    if progress is None or progress.percent < 0:
        return before or UNKNOWN
    return f"{progress.percent:.2f}%"


def _why_pending(pod: Pod) -> str:
    waiting = [s.state.waiting for s in pod.status.container_statuses if s.state is not None and s.state.waiting]
    said = [f"{each.reason}: {each.message}" if each.message else each.reason for each in waiting]
    placed = [c for c in pod.status.conditions if c.type == names.CONDITION_POD_SCHEDULED]
    said += [each.message for each in placed if each.status == names.FALSE]
    return "; ".join(text for text in said if text)[:1024]


def report_of(pod: Pod) -> ImportReport:
    """The importer's last words, or those of whoever ended it."""
    ended = [s.state.terminated for s in pod.status.container_statuses if s.state is not None and s.state.terminated]
    for each in ended:
        try:
            return decode(each.message, ImportReport)
        except msgspec.DecodeError:
            words = f"the importer ended with exit code {each.exit_code} and without a report"
            return ImportReport(reason=importplan.TROUBLE, message=words)
    words = pod.status.message or pod.status.reason or "no container of it ran"
    return ImportReport(reason=importplan.TROUBLE, message=f"the importer's Pod ended: {words}")


def _ended(state: _State, pod: Pod) -> Decision:
    report = report_of(pod)
    if report.reason == importplan.DONE and pod.status.phase == "Succeeded":
        return state.done(delete_pod=True)
    if report.reason in importplan.FINAL:
        return state.failed(report.reason, report.message)
    wait_s = _pause_s(state.volume.status.restart_count) - _since(pod, state.now)
    # The phase stays: what was done is not lost, and the next importer goes on with it.
    status = state.phase(state.volume.status.phase, running=(names.FALSE, REASON_ERROR, report.message))
    note = Note(REASON_ERROR, report.message, names.EVENT_WARNING)
    if wait_s > 0:
        return Decision(status, recheck_s=wait_s, notes=(note,), annotations={dv.KEY_POD_READY: "false"})
    again = replace(status, restart_count=status.restart_count + 1)
    return Decision(again, delete_pod=True, recheck_s=POLL_S)


def _pause_s(restarts: int) -> float:
    return float(min(_FIRST_PAUSE_S * 2 ** min(restarts, 16), _LONGEST_PAUSE_S))


def _since(pod: Pod, now: datetime) -> float:
    ended = [s.state.terminated for s in pod.status.container_statuses if s.state is not None and s.state.terminated]
    # A node may refuse a Pod before any container of it ran.
    times = [each for each in (*(one.finished_at for one in ended), pod.metadata.creation_timestamp) if each]
    return (now - parse_rfc3339(times[0])).total_seconds() if times else _LONGEST_PAUSE_S


_BOUND = (names.TRUE, "Bound", "")


class _State:
    """The status that is being worked out."""

    def __init__(self, volume: DataVolume, now: datetime) -> None:
        self.volume, self.now = volume, now

    def phase(
        self,
        phase: str,
        *,
        bound: tuple[str, str, str] | None = None,
        running: tuple[str, str, str] | None = None,
    ) -> DataVolumeStatus:
        before = self.volume.status
        conditions = [replace(each) for each in before.conditions]
        self._set(conditions, dv.BOUND, bound)
        self._set(conditions, dv.RUNNING, running or (None if conditions else (names.FALSE, "", "")))
        ready = (names.TRUE, "", "") if phase == dv.DONE else (names.FALSE, "", "")
        self._set(conditions, dv.READY, ready)
        progress = before.progress or UNKNOWN
        name = self.volume.metadata.name
        return replace(before, claim_name=name, phase=phase, progress=progress, conditions=conditions)

    def _set(self, conditions: list[Condition], kind: str, said: tuple[str, str, str] | None) -> None:
        if said is not None:
            set_condition(conditions, kind, said[0], said[1], said[2], self.now)

    def done(self, *, delete_pod: bool = False) -> Decision:
        status = self.phase(dv.DONE, bound=_BOUND, running=(names.FALSE, REASON_COMPLETED, "the claim is filled"))
        words = f"the claim {self.volume.metadata.name} is filled"
        return Decision(
            replace(status, progress=WHOLE),
            delete_pod=delete_pod,
            annotations={dv.KEY_POD_PHASE: dv.DONE, dv.KEY_POD_READY: "false"},
            notes=(Note(REASON_COMPLETED, words),),
        )

    def failed(self, reason: str, message: str) -> Decision:
        status = self.phase(dv.FAILED, running=(names.FALSE, reason, message))
        note = Note(reason, message, names.EVENT_WARNING)
        return Decision(status, annotations={dv.KEY_POD_PHASE: dv.FAILED, dv.KEY_POD_READY: "false"}, notes=(note,))

    def waits(self, reason: str, message: str) -> Decision:
        """For something that others do."""
        status = self.phase(dv.PENDING, running=(names.FALSE, reason, message))
        note = Note(reason, message, names.EVENT_WARNING)
        return Decision(status, notes=(note,), recheck_s=10.0)
