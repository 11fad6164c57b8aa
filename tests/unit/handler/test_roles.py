"""Whatever Pods a VMI has: one side at most speaks for it and starts its guest, and no other disturbs that side."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from framework.podworld import NODES, POD_UIDS, vmis
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from virt_core.apis.netplan import NetReport
from virt_core.apis.podroles import Role
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.store import key_of
from virt_core.runtime.clock import FakeClock
from virt_handler.decisions.silence import Verdict
from virt_handler.decisions.status import reported
from virt_handler.decisions.steps import next_step
from virt_handler.decisions.vocabulary import Action, Launcher, Step, Task, View, Work
from virt_handler.loop.roster import Roster, Sessions
from virt_handler.loop.sessions import Session
from virt_protos.launcher.v1 import launcher_pb2 as pb

NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
FIRST = POD_UIDS[0]
moments = st.integers(-300, 300).map(lambda seconds: NOW + timedelta(seconds=seconds))
maybe_moments = st.none() | moments
works = st.builds(
    Work,
    st.sampled_from(Task),
    error=st.sampled_from(("", "no eth0")),
    fatal=st.booleans(),
    started=maybe_moments,
    retry_at=maybe_moments,
)
domains = st.builds(
    pb.Domain,
    state=st.sampled_from(pb.DomainState.values()),
    reason=st.sampled_from(("", "User", "Shutdown", "Destroyed", "Crashed", "Migrated")),
    agent_connected=st.booleans(),
    graceful_shutdown_requested=st.booleans(),
)
any_views = st.builds(
    View,
    since=moments,
    launcher=st.sampled_from(Launcher),
    refused=st.sampled_from(("", "a link")),
    pod_exists=st.booleans(),
    domain=st.none() | domains,
    network=works,
    report=st.none() | st.just(NetReport()),
    sync=works,
    stop_started=maybe_moments,
    stop_sent=maybe_moments,
    kill_sent=maybe_moments,
    delete_sent=st.booleans(),
    alive_since=maybe_moments,
    pulse=st.sampled_from(Verdict),
)
#: Ready for a guest, which chance alone makes too seldom.
ready = st.builds(
    View,
    since=moments,
    launcher=st.just(Launcher.READY),
    domain=st.just(pb.Domain(state=pb.DOMAIN_STATE_ABSENT)),
    network=st.just(Work(Task.DONE)),
)
views = any_views | ready
#: What each Pod looks like to its node at one moment.
looks = st.fixed_dictionaries(dict.fromkeys(POD_UIDS, views))
histories = st.lists(st.tuples(vmis(), looks), min_size=1, max_size=4)


class Kept:
    """Records, listeners and wirings that need no disk."""

    def put(self, record: Any) -> None: ...
    def delete(self, pod_uid: str) -> None: ...
    def recall(self, session: Session) -> bool:
        return False

    def forget(self, pod_uid: str) -> None: ...
    def close(self, session: Session) -> None: ...


class Node:
    def __init__(self, name: str) -> None:
        kept: Any = Kept()
        self.sessions = Sessions()
        self._roster = Roster(name, FakeClock(), self.sessions, kept, kept, kept)

    def live(self, vmi: VirtualMachineInstance, looks: dict[str, View]) -> Iterator[tuple[Session, Step]]:
        """What the loop does at one moment, but for the acts."""
        for session in self._roster.due(key_of(vmi), vmi):
            step = next_step(vmi, looks[session.pod_uid], NOW, session.role)
            yield session, step
            if step.action is Action.CLEAN_UP:
                self._roster.close(session)


@settings(max_examples=60, deadline=None)
@given(histories)
def test_one_side_starts_the_guest_and_speaks_for_it(
    history: list[tuple[VirtualMachineInstance, dict[str, View]]],
) -> None:
    nodes = [Node(name) for name in NODES]
    for vmi, look in history:
        active: list[str] = []
        for session, step in (each for node in nodes for each in node.live(vmi, look)):
            if session.role is Role.ACTIVE:
                active.append(session.pod_uid)
                continue
            assert step.action is not Action.SYNC
            assert step.action is not Action.WIRE_NETWORK or session.role is Role.TARGET
            assert reported(vmi, look[session.pod_uid], step, NOW) is vmi
        assert len(active) <= 1
        for node in nodes:
            speaker = node.sessions.active(vmi.metadata.uid)
            assert speaker is None or speaker.pod_uid in active


@settings(max_examples=150, deadline=None)
@given(vmis(), views, st.sampled_from((None, Role.SOURCE, Role.TARGET)))
def test_who_does_not_have_the_guest_has_nothing_to_say(
    vmi: VirtualMachineInstance, look: View, role: Role | None
) -> None:
    step = next_step(vmi, look, NOW, role)
    assert step.end is None
    assert step.action is not Action.SYNC
    assert reported(vmi, look, step, NOW) is vmi


def lone(vmi: VirtualMachineInstance) -> VirtualMachineInstance:
    """The same VMI with no Pod but the first."""
    pods = {uid: node for uid, node in vmi.status.active_pods.items() if uid == FIRST}
    return replace(vmi, status=replace(vmi.status, active_pods=pods))


def is_clear(vmi: VirtualMachineInstance) -> bool:
    """No second Pod is where the guest is: there nobody could say which of them has it, and none acts."""
    at, pods = vmi.status.node_name, vmi.status.active_pods
    return all(uid == FIRST or (at and node != at) for uid, node in pods.items())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(vmis().filter(is_clear), looks), min_size=1, max_size=4))
def test_other_pods_do_not_disturb_the_first(history: list[tuple[VirtualMachineInstance, dict[str, View]]]) -> None:
    """Step for step and word for word the same as if it were alone, whatever becomes of the others."""
    for name in NODES:
        crowded, alone = Node(name), Node(name)
        for vmi, look in history:
            together = {session.pod_uid: (session.role, step) for session, step in crowded.live(vmi, look)}
            apart = {session.pod_uid: (session.role, step) for session, step in alone.live(lone(vmi), look)}
            assert together.get(FIRST) == apart.get(FIRST)
            if FIRST in apart:
                step = apart[FIRST][1]
                told, expected = (reported(each, look[FIRST], step, NOW) for each in (vmi, lone(vmi)))
                assert lone(told).status == expected.status
