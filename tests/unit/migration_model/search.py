"""Goes through every world that can be reached, and says by which steps one was reached that must not be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.base import encode
from virt_core.apis.facts import is_final, is_terminating
from virt_handler.decisions.moving import under_way

from .machines import calls, moves
from .programs import (
    Next,
    controller,
    died,
    news,
    owner,
    reads,
    restarts,
    source_handler,
    spread,
    target_handler,
    written,
)
from .world import ALIVE, FILLS, NODE, RUNS, STANDS, World, first_job, job_of, normal, vmi_of

STEPS = (reads, controller, owner, source_handler, target_handler, news, restarts, calls, moves)


def crashes(world: World) -> Iterator[Next]:
    if not world.faults:
        return
    less = world._replace(faults=world.faults - 1)
    if world.s_up:
        yield "the source's handler is killed", died(less, "s")
    if world.t_up and world.target_pod != "none":
        yield "the target's handler is killed", died(less, "t")


def failover(world: World) -> Iterator[Next]:
    """Another virt-controller leads, whose list of Pods is older than the VMI that it reads."""
    if world.faults and world.target_pod in ALIVE and world.c_pod is None:
        yield "another virt-controller leads", world._replace(c_pod="none", faults=world.faults - 1)


def giving_up(world: World) -> Iterator[Next]:
    """Somebody deletes the job."""
    if world.faults and world.job is not None and not is_terminating(job_of(world.job)) and not _is_over(world.job):
        job = job_of(world.job)
        gone = replace(job, metadata=replace(job.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
        yield "the job is deleted", world._replace(job=normal(gone), faults=world.faults - 1)


def deletion(world: World) -> Iterator[Next]:
    """Somebody deletes the VMI, or stops its VM."""
    if world.faults and world.vmi is not None and not is_terminating(vmi_of(world.vmi)):
        vmi = vmi_of(world.vmi)
        gone = replace(vmi, metadata=replace(vmi.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
        after = written(world, "", normal(gone))
        yield "the VMI is deleted", after._replace(excused=True, faults=world.faults - 1)


def vanishing(world: World) -> Iterator[Next]:
    """Somebody removes the job with force, though it is not over."""
    if world.faults and world.job is not None and not _is_over(world.job):
        yield "the job is removed by force", world._replace(job=None, faults=world.faults - 1)


def again(world: World) -> Iterator[Next]:
    """A second job, once the first is over or not there any more."""
    over = world.job is None or _is_over(world.job)
    if over and world.jobs == 1 and world.vmi is not None and vmi_of(world.vmi).status.node_name == NODE:
        yield "a second job is made", world._replace(job=normal(first_job(1)), jobs=2)


def _is_over(job: bytes) -> bool:
    return job_of(job).status.phase in names.FINAL_PHASES


def shown(world: World) -> str:
    plain = world._asdict()
    for who in ("vmi", "c_vmi", "s_vmi", "t_vmi"):
        if plain[who] is not None:
            vmi = vmi_of(plain[who])
            move = vmi.status.migration_state
            gone = vmi.metadata.deletion_timestamp is not None
            plain[who] = (
                f"{vmi.status.phase} gone={gone} on {vmi.status.node_name} {encode(move).decode() if move else ''}"
            )
    if world.job is not None:
        plain["job"] = job_of(world.job).status.phase
    return "\n  ".join(f"{key}: {value}" for key, value in plain.items())


@dataclass
class Found:
    worlds: int = 0
    #: The phases in which jobs ended.
    ends: set[str] = field(default_factory=set)
    #: What must not be, and how it came to that.
    wrong: list[tuple[str, list[str], World]] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n\n".join(
            f"{what}:\n  " + "\n  ".join(path) + f"\n  {shown(world)}" for what, path, world in self.wrong
        )


def search(start: World, *accidents: Callable[[World], Iterator[Next]], limit: int = 2_000_000) -> Found:
    found = Found()
    came: dict[World, tuple[World | None, str]] = {start: (None, "")}
    back: dict[World, list[World]] = {}
    good: list[World] = []
    todo = deque([start])
    while todo and len(came) < limit:
        world = todo.popleft()
        if what := evil(world):
            found.wrong.append((what, path_to(came, world), world))
            break
        if is_settled(world):
            good.append(world)
            if world.job is not None:
                found.ends.add(job_of(world.job).status.phase)
        for steps, by_itself in ((STEPS, True), (accidents, False)):
            for step in steps:
                for label, after in (each for name, then in step(world) for each in _all(name, world, then)):
                    if what := forbidden(world, after):
                        found.wrong.append((what, [*path_to(came, world), label], after))
                        return found
                    if by_itself:
                        back.setdefault(after, []).append(world)
                    if after not in came:
                        came[after] = (world, label)
                        todo.append(after)
    found.worlds = len(came)
    if not found.wrong:
        stuck = _stuck(came, back, good)
        if stuck is not None:
            found.wrong.append(("it never gets settled", path_to(came, stuck), stuck))
    return found


def _all(label: str, before: World, after: World) -> Iterator[Next]:
    for number, each in enumerate(spread(before, after)):
        yield f"{label} (somebody does not hear of it)" if number else label, each


def _stuck(
    came: dict[World, tuple[World | None, str]], back: dict[World, list[World]], good: list[World]
) -> World | None:
    """The first world from which no good one is reached, even if nothing else goes wrong."""
    fine, todo = set(good), deque(good)
    while todo:
        for before in back.get(todo.popleft(), ()):
            if before not in fine:
                fine.add(before)
                todo.append(before)
    return next((world for world in came if world not in fine), None)


def path_to(came: dict[World, tuple[World | None, str]], world: World) -> list[str]:
    path = []
    at: World | None = world
    while at is not None:
        at, label = came[at]
        path.append(label)
    return path[-2::-1]


def evil(world: World) -> str:
    if world.source == RUNS and world.target == RUNS:
        return "the guest runs twice"
    return ""


def forbidden(before: World, after: World) -> str:
    resumed = before.source == STANDS and after.source == RUNS and before.move is not None and before.move.held
    if resumed and (after.target == RUNS or (after.target == FILLS and after.question == "flies")):
        return "a held guest goes on though it may run there"
    if before.vmi is not None and after.vmi is not None and before.vmi is not after.vmi:
        old, new = vmi_of(before.vmi).status, vmi_of(after.vmi).status
        if old.phase in names.FINAL_PHASES and new.phase != old.phase:
            return "the VMI leaves a final phase"
    if before.job is not None and after.job is not None and before.job is not after.job:
        one, other = job_of(before.job), job_of(after.job)
        same = one.metadata.uid == other.metadata.uid
        if same and _is_over(before.job) and one.status.phase != other.status.phase:
            return "the job leaves a final phase"
    return ""


def _moved_before_the_second(world: World) -> bool:
    """The first move ended well after its job had vanished: the second job would move the guest back, which is a search
    of its own."""
    if world.jobs == 1 or world.vmi is None or is_final(vmi_of(world.vmi)):
        return False
    return vmi_of(world.vmi).status.node_name != NODE


def is_settled(world: World) -> bool:
    """Nothing is left to do, and what is written down is true."""
    here, there = world.source in (RUNS, STANDS), world.target in (RUNS, FILLS)
    if _moved_before_the_second(world):
        return world.target == RUNS and world.source not in (RUNS, STANDS)
    if world.job is not None and not _is_over(world.job):
        return False
    if world.vmi is None or is_final(vmi_of(world.vmi)):
        return world.excused and not here and not there
    vmi = vmi_of(world.vmi)
    if is_terminating(vmi) or (world.job is not None and under_way(vmi) is not None):
        return False
    at_source = vmi.status.node_name == NODE
    if world.job is not None:
        succeeded = job_of(world.job).status.phase == names.MIGRATION_SUCCEEDED
        if succeeded != (not at_source):
            return False
    if at_source:
        # Nobody is left to remove the Pod of a job that was removed by force; it waits, and has no guest.
        removed = world.target_pod in ("gone", "none", "over") or world.job is None
        return world.source == RUNS and not there and removed
    return world.target == RUNS and world.source not in (RUNS, STANDS)
