"""Each decision about the certificates on its own: what is there, what time it is, what is done."""

from __future__ import annotations

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
OVERLAP = 60.0


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def ca(name: str, made: float = 0, life: float = 600) -> Authority:
    return Authority(name, at(made), at(made + life))


def leaf(issuer: str, made: float = 0, life: float = 120, *, fits: bool = True) -> Leaf:
    return Leaf(issuer, at(made), at(made + life), fits)


def state(**changes: object) -> State:
    """A system in order: one CA, two certificates of it, everybody trusts it."""
    a = ca("a")
    whole = State(active=a, trusted=(a,), leaves={"x": leaf("a"), "y": leaf("a")}, bundles=dict.fromkeys("xyw", ("a",)))
    return replace(whole, **changes)  # type: ignore[arg-type]


def rotating(**changes: object) -> State:
    """The next CA is there and trusted by everybody, since the second 400."""
    a, b = ca("a"), ca("b", 400)
    fields: dict[str, object] = {
        "next": b,
        "trusted": (a, b),
        "bundles": dict.fromkeys("xyw", ("a", "b")),
        "leaves": {"x": leaf("a", 390), "y": leaf("a", 390)},
        "next_since": at(400),
    }
    return state(**(fields | changes))


def retiring(**changes: object) -> State:
    """The new CA signs, the old one is still trusted; nobody shows a certificate of it since the second 460."""
    a, b = ca("a"), ca("b", 400)
    fields: dict[str, object] = {
        "active": b,
        "trusted": (a, b),
        "bundles": dict.fromkeys("xyw", ("a", "b")),
        "leaves": {"x": leaf("b", 460), "y": leaf("b", 460)},
        "settled_since": at(460),
    }
    return state(**(fields | changes))


def steps(given: State, now: float, policy: Policy = POLICY) -> list[Step]:
    return list(plan(given, policy, at(now)).steps)


NEW_CERTIFICATES = [Issue("x", Slot.ACTIVE), Issue("y", Slot.ACTIVE)]
LOST_CA: dict[str, object] = {"active": None}
BOTH = (ca("a"), ca("b", 9))


@pytest.mark.parametrize(
    ("what", "given", "now", "expected"),
    [
        ("a new system gets a CA at once", State(leaves={"x": None}), 0, [Make(Slot.ACTIVE)]),
        ("then certificates", State(ca("a"), trusted=(ca("a"),), leaves={"x": None}), 0, [Issue("x", Slot.ACTIVE)]),
        ("nothing to do", state(), 10, []),
        ("a certificate is renewed at two thirds", state(), 80, NEW_CERTIFICATES),
        ("not before", state(), 79.9, []),
        ("a deleted Secret is made again at once", state(leaves={"x": None, "y": leaf("a")}), 1, NEW_CERTIFICATES[:1]),
        (
            "so is one that does not fit",
            state(leaves={"x": leaf("a", fits=False), "y": leaf("a")}),
            1,
            NEW_CERTIFICATES[:1],
        ),
        ("or is from a stranger", state(leaves={"x": leaf(""), "y": leaf("a")}), 1, NEW_CERTIFICATES[:1]),
        ("or has expired", state(leaves={"x": leaf("a", -200), "y": leaf("a")}), 1, NEW_CERTIFICATES[:1]),
        ("a bundle that was changed is written again", state(bundles={"x": ("a",), "w": None}), 1, [Publish("w")]),
        ("and one that trusts too much", state(bundles={"w": ("a", "evil")}), 1, [Publish("w")]),
        ("the next CA is made at two thirds of the life", state(), 400, [Make(Slot.NEXT)]),
        ("and published", rotating(bundles={"x": ("a", "b"), "w": ("a",)}, next_since=None), 401, [Publish("w")]),
        ("then the overlap begins", rotating(next_since=None), 402, [Note(Mark.NEXT_TRUSTED)]),
        ("in which it does not sign", rotating(), 459, []),
        (
            "while the old one does",
            rotating(leaves={"x": leaf("a", 340), "y": leaf("a", 390)}),
            430,
            NEW_CERTIFICATES[:1],
        ),
        ("until it is over", rotating(), 460, [Promote()]),
        ("unless somebody does not trust it any more", rotating(bundles={"w": ("a",)}), 460, [Publish("w")]),
        ("a mark from the future counts from now", rotating(next_since=at(9999)), 410, [Note(Mark.NEXT_TRUSTED)]),
        ("an overlap is over when half of what is left is", rotating(next_since=at(560)), 580, [Promote()]),
        (
            "certificates of the old CA are replaced",
            retiring(leaves={"x": leaf("a", 450), "y": leaf("b", 460)}),
            461,
            NEW_CERTIFICATES[:1],
        ),
        ("then the old CA waits", retiring(settled_since=None), 462, [Note(Mark.SETTLED)]),
        ("for the overlap", retiring(), 519, []),
        ("and is forgotten", retiring(), 520, [Forget(("a",))]),
        ("by everybody", retiring(trusted=(ca("b", 400),), settled_since=None), 521, [Publish(h) for h in "xyw"]),
        (
            "a mark from the future counts from now, here too",
            retiring(settled_since=at(9999)),
            470,
            [Note(Mark.SETTLED)],
        ),
        ("an expired CA is replaced at once", state(), 601, [Make(Slot.ACTIVE)]),
        ("by the next one, if there is one", rotating(next_since=None), 601, [Promote()]),
        ("a lost key does not break what it has signed", state(**LOST_CA), 10, [Make(Slot.NEXT)]),
        ("which stays believed", state(**LOST_CA, next=ca("b", 9), trusted=(ca("a"),)), 10, []),
        (
            "a broken certificate is then signed by the next CA",
            state(**LOST_CA, next=ca("b", 9), trusted=BOTH, bundles={"w": ("a",)}, leaves={"x": None, "y": leaf("a")}),
            10,
            [Publish("w"), Issue("x", Slot.NEXT)],
        ),
        (
            "and its certificate is good",
            state(next=ca("b", 9), trusted=BOTH, bundles={"w": ()}, leaves={"x": leaf("b", 10)}),
            12,
            [Publish("w")],
        ),
        (
            "with nothing left to lose the next CA signs at once",
            state(**LOST_CA, next=ca("b", 9), leaves={"x": None}),
            10,
            [Promote()],
        ),
        (
            "a retired CA that has expired is simply gone",
            retiring(leaves={"x": leaf("b", 560)}),
            601,
            [Publish(h) for h in "xyw"],
        ),
    ],
)
def test_what_is_done(what: str, given: State, now: float, expected: list[Step]) -> None:
    assert steps(given, now) == expected, what


def test_shorter_lifetimes_hold_at_once() -> None:
    """A CA of a year, made a day ago, and lifetimes of minutes now: it is far too old."""
    old = ca("a", -86400, 365 * 86400)
    given = state(active=old, trusted=(old,), leaves={"x": leaf("a", -100, 86400)})
    assert steps(given, 0) == [Make(Slot.NEXT)]
    young = ca("a", 0, 365 * 86400)
    given = state(active=young, trusted=(young,), leaves={"x": leaf("a", -100, 86400)}, bundles={"x": ("a",)})
    assert steps(given, 0) == [Issue("x", Slot.ACTIVE)]


def test_longer_lifetimes_wait_for_the_end_of_the_old_ones() -> None:
    longer = Policy(timedelta(days=365), timedelta(days=1))
    assert steps(state(), 79, longer) == []
    assert steps(state(), 400, longer) == [Make(Slot.NEXT)]


def test_a_certificate_that_would_end_with_its_ca_is_not_renewed_for_nothing() -> None:
    given = state(leaves={"x": leaf("a", 360, 100), "y": leaf("a", 390)})
    given = replace(given, active=ca("a", 0, 465), trusted=(ca("a", 0, 465),), next=ca("b", 400))
    assert Issue("x", Slot.ACTIVE) not in steps(given, 430)


@pytest.mark.parametrize(
    ("given", "now", "wake"),
    [
        (state(), 0, 80),  # The certificates.
        (state(leaves={"x": leaf("a", 350)}, bundles={}), 360, 400),  # The next CA.
        (rotating(), 401, 460),  # Its promotion.
        (retiring(), 470, 520),  # The end of the old one.
        (
            state(active=ca("a", 0, 9e6), trusted=(ca("a", 0, 9e6),), leaves={}),
            0,
            400,
        ),  # As if it lived as long as now.
    ],
)
def test_when_to_look_again(given: State, now: float, wake: float) -> None:
    assert plan(given, POLICY, at(now)).wake == at(wake)


def test_we_look_every_hour_at_least() -> None:
    given = state(active=ca("a", 0, 9e6), trusted=(ca("a", 0, 9e6),), leaves={})
    assert plan(given, Policy(timedelta(days=100), timedelta(days=1)), at(0)).wake == at(3600)


@pytest.mark.parametrize(("ca_s", "leaf_s"), [(10, 20), (10, 1), (0, 0)])
def test_lifetimes_that_can_not_work_are_refused(ca_s: int, leaf_s: int) -> None:
    with pytest.raises(ValueError, match="lifetimes are"):
        Policy(timedelta(seconds=ca_s), timedelta(seconds=leaf_s))


def test_the_overlap_has_an_upper_end() -> None:
    assert POLICY.overlap.total_seconds() == OVERLAP
    assert Policy(timedelta(days=3650), timedelta(days=1)).overlap == timedelta(hours=1)
