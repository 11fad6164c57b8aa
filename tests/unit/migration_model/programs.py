"""The programs: each reads what it knows, asks its own decider, and does what that says. Those are the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import cache

from virt_controller.migration.decide import Chance, decide, must_look
from virt_controller.vmi.decide import decide as decide_vmi
from virt_core.apis.facts import is_final, is_terminating
from virt_core.apis.migrationstate import MigrationConfiguration
from virt_core.apis.podroles import Role, recorded
from virt_handler.decisions import moving
from virt_handler.decisions.status import is_urgent, reported
from virt_handler.decisions.steps import due_here, next_step
from virt_handler.decisions.vocabulary import Action, Launcher, Task, View, Way, Work

from .world import (
    ALIVE,
    FILLS,
    JOBS,
    LATE,
    NODE,
    NONE,
    NOW,
    OTHER,
    RUNS,
    SOURCE,
    TARGETS,
    Known,
    World,
    domain_of,
    first_vmi,
    job_of,
    normal,
    pod_of,
    vmi_of,
)

Next = tuple[str, World]
_CHANCE = Chance(settings=MigrationConfiguration())
_LAUNCHERS = {"waiting": Launcher.WAITING, "ready": Launcher.READY, "gone": Launcher.GONE}


def forget() -> None:
    """What was decided before: the deciders may be others now."""
    for each in (_controller, _owner, _handler, _is_due):
        each.cache_clear()


def known_at_first() -> bytes:
    """The VMI as the node has reported its running guest."""
    vmi: bytes | None = normal(first_vmi())
    told = vmi
    while told is not None:
        vmi = told
        told, *_ = _handler(vmi, Known("ready", RUNS), NODE, SOURCE, "", None, True, NOW)
    assert vmi is not None
    return vmi


def written(world: World, by: str, vmi: bytes | None) -> World:
    """Whoever had read the newest version has an old one from now on, but for the writer."""
    old = {each: world.vmi for each in ("c_vmi", "s_vmi", "t_vmi") if each != by and getattr(world, each) is None}
    return world._replace(vmi=vmi, **old)


def reads(world: World) -> Iterator[Next]:
    for who in ("c_vmi", "s_vmi", "t_vmi", "c_pod"):
        if getattr(world, who) is not None:
            yield f"{who[0]} reads {who[2:]}", world._replace(**{who: None})


# -- virt-controller ---------------------------------------------------------------------------------------------------


@cache
def _controller(job: bytes, vmi: bytes | None, pod: str, source_pod: str, late: bool, round: int):  # type: ignore[no-untyped-def]
    pods = [] if source_pod == "gone" else [pod_of(SOURCE, source_pod, "")]
    if pod not in ("none", "gone"):
        pods.append(pod_of(TARGETS[round], pod, JOBS[round]))
    seen = vmi_of(vmi) if vmi is not None else None
    chosen = decide(job_of(job), seen, pods, LATE if late else NOW, _CHANCE)
    changed = None
    if chosen.vmi is not None and (changed := normal(chosen.vmi)) == vmi:
        changed = None
    return must_look(job_of(job), seen, pods), chosen, changed, normal(chosen.job) if chosen.job is not None else None


def controller(world: World) -> Iterator[Next]:
    if world.job is None:
        return
    yield from _controls(world, late=False)
    if world.target != RUNS or world.source_pod not in ("over", "left", "gone"):
        yield from _controls(world, late=True)
    elif world.faults:
        # The target's node was silent for a minute, and its guest is given up.
        yield from _controls(world._replace(faults=world.faults - 1, excused=True), late=True)


def _controls(world: World, late: bool) -> Iterator[Next]:
    assert world.job is not None
    seen = world.c_vmi if world.c_vmi is not None else world.vmi
    pod = world.c_pod or world.target_pod
    look, chosen, vmi, job = _controller(world.job, seen, pod, world.source_pod, late, world.round)
    if look and pod != world.target_pod:
        _, chosen, vmi, job = _controller(world.job, seen, world.target_pod, world.source_pod, late, world.round)
    effects = []
    if vmi is not None:
        if world.c_vmi is not None:
            return  # A conflict: it reads again.
        effects.append(lambda w: written(w, "c_vmi", vmi))
    if chosen.create_pod:
        effects.append(_create)
    gone = {pod.metadata.uid for pod in chosen.delete_pods}
    if gone & set(TARGETS):
        effects.append(_delete)
    if SOURCE in gone:
        effects.append(lambda w: w._replace(source_pod="gone"))
    if job is not None and job != world.job:
        effects.append(lambda w: w._replace(job=_kept(job)))
    words = "controller, late" if late else "controller"
    for effect in effects[:-1]:
        world = effect(world)
        if world.faults:
            yield f"{words} (dies in the middle)", world._replace(faults=world.faults - 1)
    if effects:
        yield words, effects[-1](world)


def _create(world: World) -> World:
    assert world.job is not None
    # One that a vanished job left waits beside it for its end, and is not looked at any more.
    empty = world.target == NONE and JOBS[world.round] != job_of(world.job).metadata.uid
    if world.target_pod not in ("none", "gone") and not empty:
        return world
    clean = world._replace(t=Known(), prepared="", exit="", to_target=frozenset())
    return clean._replace(target_pod="runs", round=JOBS.index(job_of(world.job).metadata.uid))


def _delete(world: World) -> World:
    return world._replace(target_pod="ends") if world.target_pod == "runs" else world


def _kept(job: bytes) -> bytes | None:
    meta = job_of(job).metadata
    return None if meta.deletion_timestamp is not None and not meta.finalizers else job


@cache
def _owner(vmi: bytes, source_pod: str, target_pod: str, round: int):  # type: ignore[no-untyped-def]
    pods = [] if source_pod == "gone" else [pod_of(SOURCE, source_pod, "")]
    if target_pod not in ("none", "gone"):
        pods.append(pod_of(TARGETS[round], target_pod, JOBS[round]))
    seen = vmi_of(vmi)
    chosen = decide_vmi(seen, pods, LATE)
    changed = normal(chosen.vmi) if chosen.vmi is not None else vmi
    return {pod.metadata.uid for pod in chosen.delete_pods}, changed


def owner(world: World) -> Iterator[Next]:
    """The controller of VMIs: it tells the end of a launcher that its node did not tell, and removes."""
    if world.vmi is None:
        return
    active = world.source_pod if vmi_of(world.vmi).status.node_name == NODE else world.target_pod
    over = is_terminating(vmi_of(world.vmi)) or is_final(vmi_of(world.vmi))
    if not over and active not in ("over", "left", "gone"):
        return
    gone, vmi = _owner(world.vmi, world.source_pod, world.target_pod, world.round)
    after = world
    if SOURCE in gone and world.source_pod == "runs":
        after = after._replace(source_pod="ends")
    if TARGETS[world.round] in gone:
        after = _delete(after)
    if SOURCE in gone and world.source_pod in ("over", "left"):
        after = after._replace(source_pod="gone")
    if TARGETS[world.round] in gone and world.target_pod in ("over", "left"):
        after = after._replace(target_pod="gone")
    if vmi != world.vmi:
        meta = vmi_of(vmi).metadata
        removed = meta.deletion_timestamp is not None and not meta.finalizers
        after = written(after, "", None if removed else vmi)
    if after != world:
        yield "owner", after


# -- virt-handler ------------------------------------------------------------------------------------------------------


@cache
def _handler(
    vmi: bytes | None, known: Known, node: str, pod: str, prepared: str, way: Way | None, exists: bool, now: datetime
):  # type: ignore[no-untyped-def]
    """Report, whether it may wait, and the action."""
    seen = vmi_of(vmi) if vmi is not None else None
    role = None
    if seen is not None:
        found = recorded(seen).get(pod)
        role = found.role if found is not None and found.node == node else None
    work = {"": Work(), "done": Work(Task.DONE), "hopeless": Work(Task.FAILED, "it is broken", fatal=True)}[prepared]
    met = known.launcher != "waiting"
    view = View(
        since=NOW,
        launcher=_LAUNCHERS[known.launcher],
        pod_exists=exists,
        domain=domain_of(known.machine, known.move) if met else None,
        network=Work(Task.DONE),
        prepared=work,
        way=way,
    )
    step = next_step(seen, view, now, role)
    if seen is None:
        return None, False, step.action, role
    told = reported(seen, view, step, NOW)
    may_wait = told is not seen and not is_urgent(seen, told)
    if role is Role.TARGET and told is seen:
        told, may_wait = moving.arrival_told(seen, view, node, NOW), False
    return (normal(told) if told is not seen and normal(told) != vmi else None), may_wait, step.action, role


def source_handler(world: World) -> Iterator[Next]:
    if not world.s_up or world.s.launcher == "closed":
        return
    seen = world.s_vmi if world.s_vmi is not None else world.vmi
    exists = world.source_pod in ("runs", "ends")
    report, may_wait, action, _ = _handler(seen, world.s, NODE, SOURCE, "", None, exists, NOW)
    if report is not None:
        if world.s_vmi is None:
            after = written(world, "s_vmi", report)
            if world.faults:
                yield "source handler (dies in the middle)", died(after, "s")._replace(faults=world.faults - 1)
            yield "source handler", _source_does(after, action)
        if not may_wait:
            return
    after = _source_does(world, action)
    if after != world:
        yield "source handler", after


def _source_does(world: World, action: Action) -> World:
    seen = world.s_vmi if world.s_vmi is not None else world.vmi
    move = vmi_of(seen).status.migration_state if seen is not None else None
    uid = moving.job_of(action, vmi_of(seen) if seen is not None else None, domain_of(world.s.machine, world.s.move))
    if action is Action.CLEAN_UP:
        return world._replace(s=Known("closed"))
    if action is Action.MIGRATE and move is not None:
        world = world._replace(entrance=move.migration_uid)
    names_of = (Action.MIGRATE, Action.CANCEL_MOVE, Action.SETTLE_STAYS, Action.SETTLE_GONE)
    if action in (*names_of, Action.KILL, Action.DELETE) and world.source_pod in ("runs", "ends"):
        return world._replace(to_source=world.to_source | {(action.value, uid if action in names_of else "")})
    return world


def target_handler(world: World) -> Iterator[Next]:
    if not world.t_up or world.t.launcher == "closed":
        return
    seen = world.t_vmi if world.t_vmi is not None else world.vmi
    pod = TARGETS[world.round]
    if world.t.launcher == "waiting" and not _is_due(seen, pod):
        return
    for now in (NOW, LATE) if world.used or not world.connected else (NOW,):
        yield from _target_turn(world, seen, pod, now)


def _target_turn(world: World, seen: bytes | None, pod: str, now: datetime) -> Iterator[Next]:
    exists = world.target_pod in ALIVE
    way = _way(world.exit, world.used and not world.connected) if world.exit else None
    report, may_wait, action, _ = _handler(seen, world.t, OTHER, pod, world.prepared, way, exists, now)
    if report is not None:
        if world.t_vmi is None:
            after = written(world, "t_vmi", report)
            if world.faults:
                yield "target handler (dies in the middle)", died(after, "t")._replace(faults=world.faults - 1)
            yield "target handler", _target_does(after, action)
        if not may_wait:
            return
    after = _target_does(world, action)
    if after != world:
        yield "target handler", after


@cache
def _way(job: str, over: bool) -> Way:
    return _Way(job, "10.0.0.2", {"move-libvirt": 1}, over=over)


class _Way(Way):  # type: ignore[misc]
    def __hash__(self) -> int:
        return id(self)


@cache
def _is_due(vmi: bytes | None, pod: str) -> bool:
    return vmi is not None and any(each.uid == pod for each in due_here(vmi_of(vmi), OTHER))


def _target_does(world: World, action: Action) -> World:
    if action is Action.CLEAN_UP:
        return world._replace(t=Known("closed"), exit="")
    if action in (Action.PREPARE_TARGET, Action.KILL, Action.DELETE) and world.target_pod in ALIVE:
        return world._replace(to_target=world.to_target | {action.value})
    return world


def news(world: World) -> Iterator[Next]:
    """The handlers hear from their launchers."""
    if (after := source_news(world)) != world.s:
        yield "source handler hears", world._replace(s=after)
    if (after := target_news(world)) != world.t:
        yield "target handler hears", world._replace(t=after)


def source_news(world: World) -> Known:
    """What the source's handler would know if it heard all."""
    if not world.s_up or world.s.launcher == "closed":
        return world.s
    alive = world.source_pod in ("runs", "ends")
    return Known("ready", world.source, world.move) if alive else _gone(world.s, world.source)


def target_news(world: World) -> Known:
    if not world.t_up or world.t.launcher == "closed" or world.target_pod in ("none", "gone"):
        return world.t
    seen = world.t_vmi if world.t_vmi is not None else world.vmi
    if world.t.launcher == "waiting" and not _is_due(seen, TARGETS[world.round]):
        return world.t
    alive = world.target_pod in ALIVE
    return Known("ready", world.target) if alive else _gone(world.t, world.target)


def canonical(world: World) -> World:
    """Without what changes nothing any more."""
    if world.source_pod not in ("runs", "ends"):
        world = world._replace(to_source=frozenset())
    if world.target_pod not in ALIVE:
        world = world._replace(to_target=frozenset())
    if not world.call:
        world = world._replace(answer="", connected=False)
    if world.target != FILLS:
        world = world._replace(question="")
    if not world.exit:
        world = world._replace(used=False)
    if world.entrance in world.begun | world.given_up:
        world = world._replace(entrance="")
    return world


def spread(before: World, after: World) -> Iterator[World]:
    """Who knew all hears of a change at once, or late: then it acts on what was before, until it reads again."""
    after = canonical(after)
    late: list[dict[str, object]] = []
    for who in ("c_vmi", "s_vmi", "t_vmi"):
        if getattr(before, who) is None and (old := getattr(after, who)) is not None:
            after = after._replace(**{who: None})
            late.append({who: old})
    if before.c_pod is None and after.target_pod != before.target_pod:
        late.append({"c_pod": before.target_pod})
        after = after._replace(c_pod=None)
    for who, heard in (("s", source_news), ("t", target_news)):
        if heard(before) == getattr(before, who) and (knows := heard(after)) != (old := getattr(after, who)):
            after = after._replace(**{who: knows})
            late.append({who: old})
    yield after
    if after.faults:
        for each in late:
            yield after._replace(faults=after.faults - 1, **each)


def _gone(known: Known, machine: str) -> Known:
    """One that it never met is found to have no socket; of one that it knew it sees the end, and heard the last words
    unless it was killed."""
    if known.launcher in ("waiting", "gone"):
        return known
    return known._replace(launcher="gone", machine=machine if machine != "none" else known.machine)


def died(world: World, who: str) -> World:
    """A handler's process ends: what it knew and the way that it kept."""
    world = world._replace(connected=False)
    if who == "s":
        return world._replace(s_up=False, s=Known() if world.s.launcher != "closed" else world.s, entrance="")
    known = Known() if world.t.launcher != "closed" else world.t
    return world._replace(t_up=False, t=known, exit="", prepared="")


def restarts(world: World) -> Iterator[Next]:
    if not world.s_up:
        yield "source handler starts", world._replace(s_up=True)
    if not world.t_up:
        yield "target handler starts", world._replace(t_up=True)
