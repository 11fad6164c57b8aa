"""Whatever Pods there are and whatever they say of themselves: one has the guest or none, and only that one counts."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

from framework.vmis import UID, plain_pod, vmi
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from virt_controller.vmi.decide import Decision, decide, scheduling
from virt_core.apis import names, podroles
from virt_core.apis.base import from_plain
from virt_core.apis.migrationstate import VirtualMachineInstanceMigrationState
from virt_core.apis.podroles import Role
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance

START = datetime(2026, 1, 1, tzinfo=UTC)
NODES = ("n1", "n2", "n3")
REFUSED = {"phase": "Failed", "reason": "NodeAffinity", "message": "no"}
RUNS = {"phase": "Running", "containerStatuses": [{"name": "compute", "state": {"running": {}}}]}
ENDS = {"phase": "Succeeded", "containerStatuses": [{"name": "compute", "state": {"terminated": {"exitCode": 0}}}]}


def make(uid: str, node: str, status: dict[str, Any], *, owner: str = UID, **metadata: Any) -> Pod:
    meta = {"uid": uid, "name": uid, **metadata}
    return from_plain(plain_pod(owner, metadata=meta, spec={"nodeName": node}, status=status), Pod)


statuses = st.sampled_from([{"phase": "Pending"}, RUNS, ENDS, REFUSED, {"phase": "Failed"}])
ages = st.sampled_from(["2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2036-01-01T00:00:00Z"])
kinds = st.sampled_from(["stranger", "foreign", "target"])


@st.composite
def others(draw: st.DrawFn) -> list[Pod]:
    """Pods of all sorts that do not have the guest: false ones, another VMI's, those of a move."""
    found = []
    for number in range(draw(st.integers(0, 4))):
        kind, node, status = draw(kinds), draw(st.sampled_from(NODES)), draw(statuses)
        labels = {names.LABEL_APP: names.APP_LAUNCHER, names.LABEL_CREATED_BY: UID}
        if kind == "target":
            labels[names.LABEL_MIGRATION_JOB_UID] = "job"
        owner = "somebody-else" if kind == "foreign" else UID
        stamp = draw(ages)
        found.append(make(f"other-{number}", node, status, owner=owner, labels=labels, creationTimestamp=stamp))
    return found


def _essence(decision: Decision, before: VirtualMachineInstance) -> Any:
    """What is done and told: all of it, but for the end, where only the phase counts."""
    after = decision.vmi or before
    if before.status.phase in names.FINAL_PHASES:
        return decision.create_pod, after.status.phase, decision.notes
    return dataclasses.replace(decision, vmi=after, strangers=(), delete_pods=())


class World:
    """A VMI with the Pods that are made for it, as virt-controller's loop would leave them after each decision."""

    def __init__(self) -> None:
        self.vmi: VirtualMachineInstance = vmi()
        self.own: dict[str, Pod] = {}
        self.made = 0
        self.now = START

    def step(self, extra: list[Pod]) -> None:
        pods = [*self.own.values(), *extra]
        decision = decide(self.vmi, pods, self.now)
        self.check(decision, pods)
        for gone in (*decision.delete_pods, *decision.strangers):
            self.own.pop(gone.metadata.uid, None)
        if decision.vmi is not None:
            self.vmi = decision.vmi
        if decision.create_pod:
            self.made += 1
            uid = f"own-{self.made}"
            self.own[uid] = make(uid, "", {"phase": "Pending"})
            self.vmi = scheduling(self.vmi, uid, self.now)
        self.now += timedelta(seconds=7)

    def check(self, decision: Decision, pods: list[Pod]) -> None:
        active = podroles.active(self.vmi)
        holders = podroles.having(Role.ACTIVE, self.vmi, pods)
        assert len(holders) <= 1
        assert all(pod not in holders for pod in decision.strangers)
        assert all(pod.metadata.uid not in self.vmi.status.active_pods for pod in decision.strangers)
        # The others disturb nothing: without them the same is decided.
        assert _essence(decision, self.vmi) == _essence(decide(self.vmi, holders, self.now), self.vmi)
        if decision.create_pod:
            assert active is None or podroles.active_pod(self.vmi, pods) is not None, "a second guest"

    def hold(self, status: dict[str, Any]) -> None:
        """Something happens to the Pod that has the guest."""
        active = podroles.active(self.vmi)
        if active is not None and active.uid in self.own:
            self.own[active.uid] = make(active.uid, active.node or "n1", status)

    def move(self) -> None:
        """The target of a move is recorded, as the migration controller will do it."""
        if self.vmi.status.phase != names.PHASE_RUNNING or len(self.vmi.status.active_pods) != 1:
            return
        uid = f"target-{self.made}"
        self.own[uid] = make(uid, "n2", RUNS, labels={names.LABEL_APP: names.APP_LAUNCHER})
        state = VirtualMachineInstanceMigrationState(source_node="n1", target_node="n2")
        pods = self.vmi.status.active_pods | {uid: "n2"}
        self.vmi = replace(self.vmi, status=replace(self.vmi.status, active_pods=pods, migration_state=state))

    def arrive(self) -> None:
        """The guest has moved: one write hands the VMI over."""
        if len(self.vmi.status.active_pods) == 2:
            self.vmi = replace(self.vmi, status=replace(self.vmi.status, node_name="n2"))

    def run(self) -> None:
        if self.vmi.status.phase == names.PHASE_SCHEDULED:
            self.vmi = replace(self.vmi, status=replace(self.vmi.status, phase=names.PHASE_RUNNING))


happenings = st.sampled_from(["nothing", "runs", "runs", "guest", "guest", "ends", "refused", "move", "arrive"])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(happenings, others()), min_size=1, max_size=12))
def test_only_the_pod_that_has_the_guest_counts(story: list[tuple[str, list[Pod]]]) -> None:
    world = World()
    acts = {
        "nothing": lambda: None,
        "runs": lambda: world.hold(RUNS),
        "guest": world.run,
        "ends": lambda: world.hold(ENDS),
        "refused": lambda: world.hold(REFUSED),
        "move": world.move,
        "arrive": world.arrive,
    }
    for happening, extra in story:
        acts[happening]()
        world.step(extra)


def test_the_story_reaches_a_move() -> None:
    """The world above can get that far, so that the property is about something."""
    world = World()
    world.step([])
    world.hold(RUNS)
    world.step([])
    world.run()
    world.move()
    assert {each.role for each in podroles.recorded(world.vmi).values()} == {Role.ACTIVE, Role.TARGET}
    world.arrive()
    assert {each.role for each in podroles.recorded(world.vmi).values()} == {Role.ACTIVE, Role.SOURCE}
    world.step([])
    assert world.vmi.status.phase == names.PHASE_RUNNING
