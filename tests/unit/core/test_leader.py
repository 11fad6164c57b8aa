"""Leader election: one leads, the other waits for its own clock, and a lead that cannot be renewed ends."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from framework.fake_kube import FakeKube, failure
from framework.waiting import eventually, running

from virt_core.kube.leader import LeaderElector, LeadershipLost
from virt_core.runtime.clock import FakeClock

LEASE = "/apis/coordination.k8s.io/v1/namespaces/virtpod/leases/virt-controller"


def make(
    kube: FakeKube, clock: FakeClock, identity: str, work: Callable[[threading.Event], object] | None = None
) -> LeaderElector:
    client = kube.client(timeout_s=1.0)
    return LeaderElector(client, "virtpod", "virt-controller", identity, work or (lambda s: s.wait(10)), clock=clock)


def holder(kube: FakeKube) -> str:
    return str(kube.objects[LEASE]["spec"].get("holderIdentity") or "")


def step_until(clock: FakeClock, check: Callable[[], object], step_s: float = 2.0) -> float:
    """Moves the time only when everybody waits; returns how much it took."""
    passed = 0.0

    def attempt() -> bool:
        nonlocal passed
        if check():
            return True
        if clock.waiters():
            clock.step(step_s)
            passed += step_s
        return False

    eventually(attempt)
    return passed


def test_first_comes_leads_and_gives_the_lease_back(kube: FakeKube) -> None:
    clock = FakeClock()
    worked = threading.Event()

    def work(stop: threading.Event) -> None:
        worked.set()
        stop.wait(10)

    elector = make(kube, clock, "a", work)
    with running(elector.run):
        assert worked.wait(5)
        assert elector.is_leader()
        spec = kube.objects[LEASE]["spec"]
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("a", 15)
    assert not elector.is_leader()
    assert holder(kube) == ""


def test_renews_in_time(kube: FakeKube) -> None:
    clock = FakeClock()
    elector = make(kube, clock, "a")
    with running(elector.run):
        eventually(elector.is_leader)
        first = kube.objects[LEASE]["spec"]["renewTime"]
        step_until(clock, lambda: kube.objects[LEASE]["spec"]["renewTime"] > first)
        assert kube.objects[LEASE]["spec"]["acquireTime"] == first


def test_second_takes_over_when_the_first_is_silent_for_the_duration(kube: FakeKube) -> None:
    """The time written in the lease lies in the past, but only our own clock counts."""
    old = {"holderIdentity": "dead", "leaseDurationSeconds": 15, "renewTime": "2001-01-01T00:00:00.000000Z"}
    kube.put(LEASE, {"spec": old})
    clock = FakeClock()
    elector = make(kube, clock, "b")
    with running(elector.run):
        waited = step_until(clock, elector.is_leader)
        assert 14 <= waited <= 20
        assert kube.objects[LEASE]["spec"]["leaseTransitions"] == 1
        assert holder(kube) == "b"


def test_a_standby_knows_whether_somebody_leads(kube: FakeKube) -> None:
    """A lease that it finds may be a dead one's: only a renewal shows that somebody lives."""
    clock = FakeClock()
    first, second = make(kube, clock, "a"), make(kube, clock, "b")
    assert not second.somebody_leads()
    with running(first.run):
        eventually(first.somebody_leads)
        with running(second.run):
            eventually(lambda: clock.waiters() == 2)
            assert not second.somebody_leads()
            step_until(clock, second.somebody_leads)
            assert not second.is_leader()


def test_an_empty_holder_is_taken_at_once(kube: FakeKube) -> None:
    kube.put(LEASE, {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})
    elector = make(kube, FakeClock(), "b")
    with running(elector.run):
        eventually(elector.is_leader)


def test_lead_ends_before_the_lease_does_when_it_can_not_be_renewed(kube: FakeKube) -> None:
    clock = FakeClock()
    stopped = threading.Event()
    elector = make(kube, clock, "a", lambda stop: stop.wait(10) and stopped.set())
    outcome: list[BaseException] = []

    def run() -> None:
        try:
            elector.run(threading.Event())
        except LeadershipLost as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    eventually(elector.is_leader)
    kube.on_request = lambda *_: failure(500, "InternalError", "no")
    lost_after = step_until(clock, lambda: not elector.is_leader())
    thread.join(5)
    assert outcome
    assert stopped.is_set()
    assert lost_after <= 14


def test_lead_ends_at_once_when_somebody_else_holds_the_lease(kube: FakeKube) -> None:
    clock = FakeClock()
    elector = make(kube, clock, "a")

    def lose() -> None:
        with running(elector.run):
            eventually(elector.is_leader)
            kube.put(LEASE, {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 15}})
            assert step_until(clock, lambda: not elector.is_leader()) <= 4

    with pytest.raises(LeadershipLost):
        lose()
    assert holder(kube) == "thief"


def test_what_the_work_raises_comes_out(kube: FakeKube) -> None:
    def work(_stop: threading.Event) -> None:
        raise RuntimeError("broken")

    clock = FakeClock()
    elector = make(kube, clock, "a", work)
    with pytest.raises(RuntimeError, match="broken"), running(elector.run) as stop:
        step_until(clock, lambda: not elector.is_leader() and stop)


def test_times_must_make_sense(kube: FakeKube) -> None:
    with pytest.raises(ValueError, match="duration > renew deadline"):
        LeaderElector(kube.client(), "ns", "l", "a", print, lease_duration_s=5, renew_deadline_s=10)
