"""A running machine that is to have another size: its Pod, its room, and what people are told meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from framework.vmis import handed_over, running_pod

from virt_controller.vmi import resize
from virt_controller.vmi.decide import Decision, Surroundings, decide
from virt_core.apis import names
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.podparts import ResourceRequirements
from virt_core.apis.pods import ContainerStatus, Pod
from virt_core.apis.sizes import Size, asked, current, room, usable
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import get_condition
from virt_core.runtime.clock import FakeClock

NOW = FakeClock().now()
SMALL = {"requests": {"cpu": "100m", "memory": "1200Mi"}}
LARGE = {"requests": {"cpu": "200m", "memory": "2300Mi"}}
GIB = 1 << 30


def machine(sockets: int = 1, guest: str = "1Gi", **status: Any) -> VirtualMachineInstance:
    """Started with one socket and 1 Gi."""
    known = {"currentCPUTopology": {"sockets": 1, "cores": 1, "threads": 1}, "memory": {"guestAtBoot": "1Gi"}}
    known["memory"] |= {"guestCurrent": "1Gi"}
    cpu = {"sockets": sockets, "cores": 1, "threads": 1, "maxSockets": 4}
    spec = {"domain": {"cpu": cpu, "memory": {"guest": guest, "maxGuest": "4Gi"}}}
    return handed_over("Running", spec=spec, status=known | status)


def pod(
    asks: dict[str, Any], given: dict[str, Any] | None = None, pending: str = "", seen: int = 0, generation: int = 1
) -> Pod:
    plain = to_plain(running_pod())
    plain["metadata"]["generation"] = generation
    plain["spec"]["containers"] = [{"name": "compute", "image": "i", "resources": asks}]
    if given is not None:
        state = {"name": "compute", "state": {"running": {}}, "resources": given}
        plain["status"]["containerStatuses"] = [state | {"allocatedResources": given.get("requests", {})}]
    if pending:
        condition = {"type": "PodResizePending", "status": "True", "reason": pending, "message": "so much"}
        plain["status"]["conditions"] = [condition | {"observedGeneration": seen}]
    return from_plain(plain, Pod)


def decided(vmi: VirtualMachineInstance, of: Pod, wanted: dict[str, Any], refusal: str = "") -> Decision:
    resizing = resize.Resizing(of, from_plain(wanted, ResourceRequirements), refusal)
    return decide(vmi, [of], NOW, Surroundings(resizing=resizing))


def told(decision: Decision, type: str = "HotVCPUChange") -> tuple[str, str, str] | None:
    assert decision.vmi is not None
    found = get_condition(decision.vmi.status.conditions, type)
    return (found.status, found.reason, found.message) if found is not None else None


def test_a_machine_that_nobody_changed_leaves_its_pod_alone() -> None:
    assert not resize.is_due(machine(), pod(SMALL))
    assert not resize.is_due(machine(sockets=2, podRoom={"sockets": 2, "guest": "1Gi"}), pod(SMALL))
    assert resize.is_due(machine(sockets=2), pod(SMALL))
    assert resize.is_due(machine(guest="2Gi"), pod(SMALL))
    assert resize.is_due(machine(), pod(SMALL, pending="Infeasible"))


def test_a_machine_gets_what_is_asked_for_and_what_its_pod_has_room_for() -> None:
    larger = machine(sockets=3, guest="3Gi")
    assert (asked(larger), room(larger), asked(usable(larger))) == (Size(3, 3 * GIB), Size(1, GIB), Size(1, GIB))
    part = machine(sockets=3, guest="3Gi", podRoom={"sockets": 2, "guest": "3Gi"})
    assert asked(usable(part)) == Size(2, 3 * GIB)
    starts = handed_over("Scheduled", spec=to_plain(larger)["spec"])
    assert usable(starts) is starts
    assert usable(machine()) == machine()


def test_room_follows_when_the_node_has_booked_it_and_not_before() -> None:
    vmi = machine(sockets=2)
    before = decided(vmi, pod(LARGE, SMALL), LARGE)
    assert before.vmi is not None
    assert before.vmi.status.pod_room is None
    assert told(before) == ("True", "", "the launcher Pod is given the resources for it")
    after = decided(vmi, pod(LARGE, LARGE), LARGE)
    assert after.vmi is not None
    assert room(after.vmi) == Size(2, GIB)
    status = told(after)
    assert status is not None
    assert status[:2] == ("True", "WaitingForGuest")
    done = machine(sockets=2, podRoom={"sockets": 2, "guest": "1Gi"}, currentCPUTopology={"sockets": 2})
    assert told(decide(done, [pod(LARGE, LARGE)], NOW)) is None


def test_limits_count_when_they_are_in_force() -> None:
    limited = LARGE | {"limits": {"memory": "3Gi"}}
    lower = LARGE | {"limits": {"memory": "2Gi"}}
    assert room(decided(machine(2), pod(limited, lower), limited).vmi or machine()) == Size(1, GIB)
    assert room(decided(machine(2), pod(limited, limited), limited).vmi or machine()) == Size(2, GIB)


@pytest.mark.parametrize(
    ("reason", "status", "words"),
    [
        ("Infeasible", "False", "node node1 cannot give the launcher Pod what it needs for that: so much"),
        ("Deferred", "True", "node node1 has no room for that now, and will try again: so much"),
    ],
)
def test_a_node_that_does_not_give_it_is_told_with_its_words(reason: str, status: str, words: str) -> None:
    vmi = machine(sockets=2, guest="2Gi")
    decision = decided(vmi, pod(LARGE, SMALL, pending=reason), LARGE)
    assert told(decision) == told(decision, "HotMemoryChange") == (status, f"PodResize{reason}", words)
    assert [(note.type, note.reason) for note in decision.notes] == [("Warning", f"PodResize{reason}")]
    assert decision.vmi is not None
    assert asked(usable(decision.vmi)) == Size(1, GIB)
    assert decided(decision.vmi, pod(LARGE, SMALL, pending=reason), LARGE).notes == ()


def moved_into(room: str) -> Pod:
    """By a node that does not tell what it has booked."""
    made = pod(LARGE)
    made.metadata.annotations["virtpod.io/target-room"] = room
    state = {"name": "compute", "state": {"running": {}}}
    made.status.container_statuses = [from_plain(state, ContainerStatus)]
    return made


def test_a_pod_that_was_made_for_the_size_has_room_for_it() -> None:
    """Where Pods cannot be changed, nodes do not say either what a Pod has."""
    assert names.ANNOTATION_TARGET_ROOM in moved_into("{}").metadata.annotations
    for note, has in (
        ('{"sockets": 2, "guest": "1Gi"}', Size(2, GIB)),
        ('{"sockets": 1, "guest": "1Gi"}', Size(1, GIB)),
        ("?", Size(1, GIB)),
        ("", Size(1, GIB)),
    ):
        assert room(decided(machine(2), moved_into(note), LARGE).vmi or machine()) == has, note


def test_a_machine_may_move_for_what_it_can_never_have_where_it_is() -> None:
    for reason, moves in (("Infeasible", True), ("Deferred", False)):
        told_of = decided(machine(2), pod(LARGE, SMALL, pending=reason), LARGE).vmi
        assert told_of is not None
        assert resize.is_in_vain(told_of) is moves
    assert resize.is_in_vain(decided(machine(2), pod(SMALL, SMALL), LARGE, "too much").vmi or machine())
    assert not resize.is_in_vain(machine(2))


def test_what_a_node_said_of_an_earlier_wish_does_not_count() -> None:
    stale = pod(LARGE, LARGE, pending="Infeasible", seen=3, generation=4)
    assert room(decided(machine(2), stale, LARGE).vmi or machine()) == Size(2, GIB)


def test_a_refusal_of_the_api_server_is_told() -> None:
    decision = decided(machine(sockets=2), pod(SMALL, SMALL), LARGE, "exceeded quota: small")
    assert told(decision) == ("False", "PodResizeRefused", "the launcher Pod was not changed: exceeded quota: small")
    assert [note.reason for note in decision.notes] == ["PodResizeRefused"]


def test_memory_that_could_not_be_plugged_in_says_why() -> None:
    failed = {"type": "Synchronized", "status": "False", "reason": "SyncFailed", "message": "no free port"}
    vmi = machine(guest="2Gi", podRoom={"sockets": 1, "guest": "2Gi"}, conditions=[failed])
    decision = decide(vmi, [pod(LARGE, LARGE)], NOW)
    assert told(decision, "HotMemoryChange") == ("False", "Memory Hotplug Failed", "no free port")


def test_a_pod_shrinks_when_the_guest_has_given_memory_back() -> None:
    had = {"podRoom": {"sockets": 1, "guest": "3Gi"}}
    holds = machine(guest="2Gi", memory={"guestAtBoot": "1Gi", "guestCurrent": "3Gi"}, **had)
    assert (resize.is_due(holds, pod(LARGE)), asked(usable(holds))) == (False, Size(1, 2 * GIB))
    gave = machine(guest="2Gi", memory={"guestAtBoot": "1Gi", "guestCurrent": "2Gi"}, **had)
    assert (resize.is_due(gave, pod(LARGE)), resize.target(gave)) == (True, Size(1, 2 * GIB))
    assert current(gave) == Size(1, 2 * GIB)


def test_no_limit_comes_or_goes_and_devices_stay() -> None:
    has = {"requests": {"cpu": "100m", "memory": "1Gi", "devices.kubevirt.io/tun": "1"}, "limits": {"memory": "2Gi"}}
    fresh = {"requests": {"cpu": "200m", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "3Gi"}}
    want = resize.wanted(pod(has), from_plain(fresh, ResourceRequirements))
    assert want.requests == {"cpu": "200m", "memory": "2Gi", "devices.kubevirt.io/tun": "1"}
    assert want.limits == {"memory": "3Gi"}
    assert resize.is_changed(pod(has), want)
    same = from_plain({"requests": {"cpu": "0.1", "memory": "1024Mi"}, "limits": has["limits"]}, ResourceRequirements)
    assert not resize.is_changed(pod(has), resize.wanted(pod(has), same))
