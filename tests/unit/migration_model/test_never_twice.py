"""A guest never runs twice, and is never lost in silence: every order of steps, with what may go wrong between them.

Each search lets as many things go wrong as it says: beside its own accidents also a call that is lost, a process that
hears of a change late and acts on what was before, and one that dies between two writes. Deciders that are broken on
purpose are found out: otherwise the search would prove nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from virt_controller.migration import decide as controller
from virt_handler.decisions import moving, steps
from virt_handler.decisions.vocabulary import Action, Step
from virt_launcher.moves.fate import Fate
from virt_protos.launcher.v1 import launcher_pb2 as pb

from . import machines, programs
from .machines import cut, daemon, eviction, kills
from .programs import Next, forget, known_at_first
from .search import Found, again, crashes, deletion, failover, giving_up, search, vanishing
from .world import World, first_job, normal

Accident = Callable[[World], Iterator[Next]]


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    forget()
    yield
    forget()


def start(faults: int) -> World:
    return World(known_at_first(), normal(first_job()), faults=faults)


def searched(faults: int, *accidents: Accident) -> Found:
    return search(start(faults), *accidents)


def test_all_goes_well() -> None:
    found = searched(0)
    assert not found.wrong, str(found)
    assert {"Succeeded", "Failed"} == found.ends, "a target that is not ready in time is given up"


@pytest.mark.parametrize(
    ("faults", "accidents"),
    [
        (1, (cut, crashes, daemon, kills, eviction, giving_up, failover)),
        (1, (vanishing, again)),
    ],
    ids=["one accident", "a job removed by force"],
)
def test_never_twice(faults: int, accidents: tuple[Accident, ...]) -> None:
    found = searched(faults, *accidents)
    assert not found.wrong, str(found)
    assert found.worlds > 5_000


@pytest.mark.faults
@pytest.mark.parametrize(
    "accidents",
    [
        (cut, crashes, daemon),
        (cut, failover),
        (cut, kills),
        (cut, eviction),
        (cut, giving_up),
        (crashes, giving_up),
        (again, cut),
    ],
    ids=lambda those: " ".join(each.__name__ for each in those),
)
def test_never_twice_of_two_accidents(accidents: tuple[Accident, ...]) -> None:
    found = searched(2, *accidents)
    assert not found.wrong, str(found)


@pytest.mark.faults
def test_a_vmi_that_is_deleted_in_the_middle_ends_everywhere() -> None:
    found = searched(1, deletion)
    assert not found.wrong, str(found)


# -- it can fail -------------------------------------------------------------------------------------------------------


def _stays_without_the_word(vmi: Any, told: Any) -> Step:
    return Step(Action.SETTLE_STAYS)


def _taken_over_too_late(vmi: Any) -> Any:
    move = vmi.status.migration_state
    return move if move is not None and vmi.status.node_name != move.target_node else None


def _gives_up_by_itself(vmi: Any, status: Any, view: Any, domain: Any, now: Any) -> Any:
    move = moving.under_way(vmi)
    if move is not None and move.abort_requested and domain.move.uid != move.migration_uid:
        return replace(status, migration_state=replace(move, failed=True, completed=True))
    return _departure_told(vmi, status, view, domain, now)


_departure_told = moving.departure_told
_accompany = controller._accompany


def _ends_the_target(job: Any, vmi: Any, target: Any, pods: Any, now: Any) -> Any:
    chosen = _accompany(job, vmi, target, pods, now)
    late = chosen.vmi is not None and chosen.vmi.status.migration_state.abort_requested and target is not None
    return dataclasses.replace(chosen, vmi=None, delete_pods=(target,)) if late else chosen


@pytest.mark.parametrize(
    ("where", "name", "broken", "accidents"),
    [
        (moving, "_held", _stays_without_the_word, (cut,)),
        (machines, "is_held", lambda hung_up, still: False, (cut,)),
        (machines, "after_daemon", lambda facts, was_paused: Fate.STAYS, (daemon,)),
        (programs, "must_look", lambda job, vmi, pods: False, (failover,)),
        (moving, "under_way", _taken_over_too_late, (crashes,)),
        (moving, "RUNS", moving.RUNS | {pb.DOMAIN_STATE_SHUTTING_DOWN}, (cut,)),
        (moving, "_is_over_for", lambda view, move, now: False, (cut,)),
        pytest.param(moving, "departure_told", _gives_up_by_itself, (giving_up,), marks=pytest.mark.faults),
        pytest.param(steps, "_unless_it_left", lambda vmi, step: step, (kills,), marks=pytest.mark.faults),
        pytest.param(controller, "_accompany", _ends_the_target, (), marks=pytest.mark.faults),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_rule_is_found(
    monkeypatch: pytest.MonkeyPatch, where: Any, name: str, broken: Any, accidents: tuple[Accident, ...]
) -> None:
    monkeypatch.setattr(where, name, broken)
    forget()
    assert searched(1, *accidents).wrong
