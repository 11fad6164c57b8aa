"""What becomes of an export: its Pod, its Service, its Secrets, its status. Pure."""

from __future__ import annotations

from dataclasses import replace as changed
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from virt_controller.export import model
from virt_controller.export.links import Way, internal_way, link
from virt_controller.export.model import Decision, Said, World
from virt_controller.export.render import plan_id, token_name
from virt_controller.notes import Note
from virt_core.apis import exportplan, names
from virt_core.apis.export import VirtualMachineExport, VirtualMachineExportLinks, VirtualMachineExportStatus
from virt_core.apis.facts import is_terminating
from virt_core.apis.pods import Pod
from virt_core.kube.conditions import set_condition
from virt_core.runtime.times import parse_rfc3339, rfc3339

#: While something is missing that others make.
RECHECK_S = 3.0
#: Pods that take the claim later are looked for so often.
USERS_S = 30.0
#: An exporter that failed is not started anew at once.
_PAUSE_S = 5.0
_ENDED = ("Succeeded", "Failed")


def expiry(export: VirtualMachineExport) -> datetime:
    """From its creation on, whether it ever served anything or not."""
    made = parse_rfc3339(export.metadata.creation_timestamp or "1970-01-01T00:00:00Z")
    return made + ttl_of(export)


def ttl_of(export: VirtualMachineExport) -> timedelta:
    """What admission would not have let in counts as the default."""
    try:
        seconds = exportplan.seconds_of(export.spec.ttl_duration or exportplan.DEFAULT_TTL)
    except ValueError:
        seconds = exportplan.seconds_of(exportplan.DEFAULT_TTL)
    return timedelta(seconds=min(seconds, exportplan.MAX_TTL_S))


def decide(export: VirtualMachineExport, world: World, now: datetime, external: Way | None = None) -> Decision:
    state = _State(export, world, now)
    left_s = (expiry(export) - now).total_seconds()
    if left_s <= 0:
        return Decision(state.status(model.TERMINATED, "its time is over", model.POD_COMPLETED), delete_export=True)
    decision = _source(state, external)
    recheck_s = min(left_s, decision.recheck_s if decision.recheck_s is not None else left_s)
    return changed(decision, recheck_s=max(recheck_s, 0.1))


def _source(state: _State, external: Way | None) -> Decision:
    source = state.world.source
    if source.empty:
        return Decision(
            state.status(model.SKIPPED, source.message, source.reason), delete_pod=state.world.pod is not None
        )
    if source.wanted:
        status = state.status(model.PENDING, source.message, source.reason)
        return Decision(status, create_claims=True, recheck_s=RECHECK_S)
    if source.reason:
        return _unavailable(state)
    if state.world.taken:
        words = f"{state.world.taken} is there already and is not this export's"
        return Decision(state.status(model.PENDING, words, model.NAME_TAKEN), recheck_s=RECHECK_S)
    return _serve(state, external)


def _unavailable(state: _State) -> Decision:
    source, pod = state.world.source, state.world.pod
    status = state.status(model.PENDING, source.message, source.reason)
    serves = pod is not None and not is_terminating(pod)
    notes = (Note(model.PAUSED, f"export paused: {source.message}", names.EVENT_WARNING),) if serves else ()
    return Decision(status, delete_pod=serves, notes=notes, recheck_s=RECHECK_S)


def _serve(state: _State, external: Way | None) -> Decision:
    world = state.world
    base: dict[str, Any] = {
        "create_service": world.service is None,
        "create_token": state.export.spec.token_secret_ref is None and state.export.status.token_secret_ref is None,
    }
    pod = world.pod
    if pod is None:
        status = state.status(model.PENDING, "the exporter is being made", model.INITIALIZING)
        note = Note(model.POD_CREATED, f"created exporter Pod {exportplan.pod_name(state.export.metadata.name)}")
        return Decision(status, create_pod=True, notes=(note,), **base)
    if is_terminating(pod):
        status = state.status(model.PENDING, "the exporter ends", model.POD_PENDING)
        return Decision(status, recheck_s=RECHECK_S, **base)
    if pod.status.phase in _ENDED:
        return _ended(state, pod)
    if pod.metadata.annotations.get(model.KEY_PLAN) != plan_id(world.source.volumes, world.source.vm):
        words = "what is exported has changed"
        return Decision(state.status(model.PENDING, words, model.POD_PENDING), delete_pod=True, recheck_s=1.0, **base)
    certificate = pod.metadata.annotations.get(model.KEY_CERTIFICATE, "")
    if not certificate:
        status = state.status(model.PENDING, "the exporter waits for its certificate", model.POD_PENDING)
        return Decision(status, certify=True, **base)
    if not _is_ready(pod):
        words = _why_pending(pod) or "the exporter is not ready yet"
        return Decision(state.status(model.PENDING, words, model.POD_PENDING), recheck_s=USERS_S, **base)
    return Decision(state.ready(certificate, external), recheck_s=USERS_S, **base)


def _ended(state: _State, pod: Pod) -> Decision:
    said = [s.state.terminated for s in pod.status.container_statuses if s.state is not None and s.state.terminated]
    words = f"the exporter ended with exit code {said[0].exit_code}" if said else pod.status.message or "it ended"
    status = state.status(model.PENDING, words, model.POD_COMPLETED)
    times = [each.finished_at for each in said if each.finished_at]
    since_s = (state.now - parse_rfc3339(times[0])).total_seconds() if times else _PAUSE_S
    if pod.status.phase == "Failed" and since_s < _PAUSE_S:
        return Decision(status, recheck_s=_PAUSE_S - since_s)
    note = Note(model.POD_ENDED, f"{words}; another one is made", names.EVENT_WARNING)
    return Decision(status, delete_pod=True, notes=(note,), recheck_s=1.0)


def _is_ready(pod: Pod) -> bool:
    ready = any(each.type == "Ready" and each.status == names.TRUE for each in pod.status.conditions)
    return pod.status.phase == "Running" and ready


def _why_pending(pod: Pod) -> str:
    waiting = [s.state.waiting for s in pod.status.container_statuses if s.state is not None and s.state.waiting]
    said = [f"{each.reason}: {each.message}" if each.message else each.reason for each in waiting]
    said += [
        each.message
        for each in pod.status.conditions
        if each.type == names.CONDITION_POD_SCHEDULED and each.status == names.FALSE
    ]
    return "; ".join(text for text in said if text)[:1024]


class _State:
    """The status that is being worked out."""

    def __init__(self, export: VirtualMachineExport, world: World, now: datetime) -> None:
        self.export, self.world, self.now = export, world, now

    def status(self, phase: str, message: str, reason: str) -> VirtualMachineExportStatus:
        """Without links: nobody is served now."""
        return self._with(phase, Said(names.FALSE, reason, message), None)

    def ready(self, certificate: str, external: Way | None) -> VirtualMachineExportStatus:
        meta, source = self.export.metadata, self.world.source
        with_vm = source.vm is not None
        inside = link(internal_way(meta.namespace, meta.name, certificate), source.volumes, with_vm=with_vm)
        outside = link(external, source.volumes, with_vm=with_vm) if external is not None else None
        links = VirtualMachineExportLinks(internal=inside, external=outside)
        return self._with(model.READY, Said(names.TRUE, model.POD_READY), links)

    def _with(self, phase: str, ready: Said, links: VirtualMachineExportLinks | None) -> VirtualMachineExportStatus:
        before, source = self.export.status, self.world.source
        conditions = [replace(each) for each in before.conditions]
        set_condition(conditions, model.CONDITION_READY, ready.status, ready.reason, ready.message, self.now)
        if source.condition is not None:
            kind, said = source.condition
            set_condition(conditions, kind, said.status, said.reason, said.message, self.now)
        begun = not source.reason and not source.empty
        return replace(
            before,
            phase=phase,
            links=links,
            token_secret_ref=before.token_secret_ref or (token_name(self.export) if begun else None),
            ttl_expiration_time=rfc3339(expiry(self.export)),
            service_name=exportplan.service_name(self.export.metadata.name),
            virtual_machine_name=source.vm_name or None,
            conditions=conditions,
        )
