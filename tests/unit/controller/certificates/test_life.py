"""The plan over many lives of a CA, in a world where everybody sees changes late: nobody is ever refused.

The world carries the steps out on the model; every consumer sees each object with a delay of its own, up to most of the
overlap. At every moment every certificate that is shown must be believed by whoever looks at it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from virt_controller.certificates.model import (
    Authority,
    Forget,
    Issue,
    Leaf,
    Make,
    Mark,
    Note,
    Policy,
    Promote,
    Publish,
    Slot,
    State,
    Step,
)
from virt_controller.certificates.plan import plan

START = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = Policy(timedelta(seconds=600), timedelta(seconds=120))
LEAVES = ("serving", "client", "handler")
TARGETS = ("mutator", "validator", "apiservice")
#: Who looks at whose certificate.
CALLS = [*((target, "serving") for target in TARGETS), ("handler", "client"), ("client", "handler")]


class World:
    def __init__(self, policy: Policy = POLICY, seed: int = 0, late: float = 0.9) -> None:
        """People see changes late: by up to this part of the time that they have."""
        self.policy, self.now = policy, START
        self.late = time_to_notice(policy) * late
        self.state = State(leaves=dict.fromkeys(LEAVES), bundles=dict.fromkeys(TARGETS))
        self.made = self.issued = self.writes = 0
        self._random = random.Random(seed)
        self._bundles: dict[str, list[tuple[datetime, tuple[str, ...]]]] = {}
        self._shown: dict[str, list[tuple[datetime, Leaf]]] = {}
        self._ends: dict[str, datetime] = {}

    def work(self) -> None:
        """One reconciliation: until nothing is left to do."""
        for _ in range(10):
            steps = plan(self.state, self.policy, self.now).steps
            if not steps:
                return
            bundle = plan(self.state, self.policy, self.now).bundle
            for step in steps:
                self.writes += 1
                self._do(step, bundle)
        raise AssertionError("it never ends")

    def _do(self, step: Step, bundle: tuple[str, ...]) -> None:
        state, alive = self.state, tuple(a for a in self.state.trusted if a.ends > self.now)
        match step:
            case Make(slot):
                self.made += 1
                new = Authority(f"ca{self.made}", self.now, self.now + self.policy.ca_life)
                self._ends[new.id] = new.ends
                trusted = (*alive, new)
                if slot is Slot.ACTIVE:
                    self.state = replace(state, active=new, trusted=trusted)
                else:
                    self.state = replace(state, next=new, trusted=trusted, next_since=None)
            case Promote():
                self.state = replace(state, active=state.next, next=None, next_since=None, settled_since=None)
            case Forget(ids):
                kept = tuple(a for a in state.trusted if a.id not in ids)
                self.state = replace(state, trusted=kept, settled_since=None)
            case Note(Mark.NEXT_TRUSTED):
                self.state = replace(state, next_since=self.now)
            case Note():
                self.state = replace(state, settled_since=self.now)
            case Publish(holder):
                self._publish(holder, bundle)
            case Issue(name, slot):
                self._issue(name, state.active if slot is Slot.ACTIVE else state.next)
                self._publish(name, bundle)

    def _publish(self, holder: str, bundle: tuple[str, ...]) -> None:
        self.state = replace(self.state, bundles={**self.state.bundles, holder: bundle})
        self._bundles.setdefault(holder, []).append((self.now, bundle))

    def _issue(self, name: str, signer: Authority | None) -> None:
        assert signer is not None
        self.issued += 1
        ends = min(self.now + self.policy.leaf_life, signer.ends)
        leaf = Leaf(signer.id, self.now, ends)
        self.state = replace(self.state, leaves={**self.state.leaves, name: leaf})
        self._shown.setdefault(name, []).append((self.now, leaf))

    def refused(self) -> list[str]:
        return [f"{self.now:%M:%S} {a} does not believe {b}" for a, b in CALLS if not self._believes(a, b)]

    def _believes(self, looks: str, shows: str) -> bool:
        bundle = self._seen(self._bundles[looks])
        leaf = self._seen(self._shown[shows])
        return leaf.issuer in bundle and self.now < leaf.ends and self.now < self._ends[leaf.issuer]

    def _seen(self, history: list[tuple[datetime, object]]) -> object:  # type: ignore[misc]
        moment = self.now - self.late * self._random.random()
        return next((value for when, value in reversed(history) if when <= moment), history[0][1])

    def run(self, seconds: float, *, tick_s: float = 2.0, controller: bool = True) -> list[str]:
        """Lets time pass; returns who was refused when."""
        refused: list[str] = []
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            if controller:
                self.work()
            refused += self.refused()
            self.now += timedelta(seconds=tick_s)
        return refused


def time_to_notice(policy: Policy) -> timedelta:
    """The overlap, or the last third of a certificate's life: then it has expired."""
    return min(policy.overlap, policy.leaf_life / 3)


def fresh(policy: Policy = POLICY, seed: int = 0, late: float = 0.9) -> World:
    world = World(policy, seed, late)
    world.work()
    return world


@pytest.mark.parametrize(
    ("ca_s", "leaf_s"), [(600, 120), (600, 600), (600, 30), (60, 20), (60, 60), (3600, 60), (100, 90)]
)
def test_nobody_is_refused_over_ten_lives(ca_s: int, leaf_s: int) -> None:
    world = fresh(Policy(timedelta(seconds=ca_s), timedelta(seconds=leaf_s)), seed=ca_s)
    assert world.run(10 * ca_s, tick_s=ca_s / 200) == []
    assert world.made >= 10
    assert len(world.state.trusted) <= 3


def test_an_idle_system_writes_nothing() -> None:
    world = fresh()
    before = world.writes
    world.run(79)
    assert world.writes == before


def test_a_leader_that_sleeps_until_its_alarm_is_as_good() -> None:
    """`wake` is never too late."""
    world = fresh()
    refused: list[str] = []
    alarm = world.now
    while world.now < START + timedelta(seconds=6000):
        if world.now >= alarm:
            world.work()
            alarm = plan(world.state, world.policy, world.now).wake
        refused += world.refused()
        world.now += timedelta(seconds=1)
    assert refused == []


@pytest.mark.parametrize("since", range(0, 700, 53))
def test_nobody_is_refused_when_the_controller_was_away_for_a_while(since: int) -> None:
    """At any point of the rotation: 40 s are left when a certificate is due, of which it takes 30."""
    world = fresh(seed=since, late=0.2)
    refused = world.run(since) + world.run(30, controller=False) + world.run(1800)
    assert refused == []


@pytest.mark.parametrize("away_s", [100, 250, 500, 900, 100_000])
def test_after_a_long_absence_everything_is_good_again_at_once(away_s: int) -> None:
    """Certificates have expired, or the CA too: what was lost is lost, but not one moment longer."""
    world = fresh(seed=away_s, late=0.4)
    world.run(300)
    world.run(away_s, controller=False, tick_s=away_s / 50)
    world.work()
    world.run(world.late.total_seconds())
    assert world.run(3000) == []


def _delete_leaf(world: World) -> None:
    world.state = replace(world.state, leaves={**world.state.leaves, "serving": None})


def _break_bundle(world: World) -> None:
    world.state = replace(world.state, bundles={**world.state.bundles, "handler": None})


def _lose_next(world: World) -> None:
    """Its key is broken, or somebody has written garbage."""
    gone = world.state.next
    trusted = tuple(a for a in world.state.trusted if a != gone)
    world.state = replace(world.state, next=None, next_since=None, trusted=trusted)


def _lose_authorities(world: World) -> None:
    """The CA's Secret is deleted: what is recovered is what has signed the certificates in use."""
    shown = {leaf.issuer for leaf in world.state.leaves.values() if leaf is not None}
    recovered = tuple(a for a in world.state.trusted if a.id in shown)
    world.state = replace(world.state, active=None, next=None, trusted=recovered, next_since=None, settled_since=None)


@pytest.mark.parametrize("damage", [_delete_leaf, _break_bundle, _lose_next, _lose_authorities])
@pytest.mark.parametrize("when", range(0, 700, 79))
def test_nobody_is_refused_when_somebody_breaks_things(damage: Callable[[World], None], when: int) -> None:
    world = fresh(seed=when, late=0.4)
    refused = world.run(when)
    damage(world)
    assert refused + world.run(1800) == []
    assert not [leaf for leaf in world.state.leaves.values() if leaf is None]


@pytest.mark.parametrize("when", range(0, 600, 97))
@pytest.mark.parametrize(("ca_s", "leaf_s"), [(60, 20), (300, 120), (86400, 3600)])
def test_nobody_is_refused_when_the_lifetimes_change(when: int, ca_s: int, leaf_s: int) -> None:
    world = fresh(seed=when)
    refused = world.run(when)
    world.policy = Policy(timedelta(seconds=ca_s), timedelta(seconds=leaf_s))
    world.late = min(world.late, time_to_notice(world.policy) * 0.9)
    assert refused + world.run(1500, tick_s=min(ca_s / 100, 2.0)) == []


@pytest.mark.parametrize("when", range(0, 700, 53))
@pytest.mark.parametrize("skew_s", [-20, 20])
def test_nobody_is_refused_when_a_leader_with_another_clock_takes_over(when: int, skew_s: int) -> None:
    world = fresh(seed=when, late=0.4)
    refused = world.run(when)
    for _ in range(3):
        world.now += timedelta(seconds=skew_s)
        world.work()
        world.now -= timedelta(seconds=skew_s)
        refused += world.run(100)
    assert refused + world.run(900) == []
