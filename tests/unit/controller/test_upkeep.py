"""What the cluster asks of a running machine: to leave its node, or to get a newer launcher."""

from __future__ import annotations

from typing import Any

from framework.vmis import NODE, POD_UID, handed_over, plain_pod
from msgspec.structs import replace

from virt_controller.vmi import decide as rules
from virt_controller.vmi.owned import Surroundings
from virt_controller.vmi.upkeep import follow, is_outdated
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import is_true
from virt_core.runtime.clock import FakeClock

OLD, NEW = "example.internal/launcher:1", "example.internal/launcher:2"
NOW = FakeClock().now()


def pod(image: str = OLD, **changes: Any) -> Pod:
    plain = plain_pod(phase="Running", state={"running": {}}, **changes)
    plain["spec"]["nodeName"] = NODE
    plain["spec"]["containers"] = [{"name": "compute", "image": image}]
    return from_plain(plain, Pod)


def followed(vmi: VirtualMachineInstance, image: str, current: str = NEW) -> VirtualMachineInstance:
    return follow(vmi, pod(image), current, NOW)


def test_an_old_launcher_is_told_by_version_and_label() -> None:
    old = followed(handed_over("Running"), OLD)
    assert old.status.launcher_container_image_version == OLD
    assert old.metadata.labels[names.LABEL_OUTDATED_LAUNCHER] == ""
    assert is_outdated(old, NEW)
    assert not is_outdated(old, OLD)
    moved = followed(old, NEW)
    assert moved.status.launcher_container_image_version == NEW
    assert names.LABEL_OUTDATED_LAUNCHER not in moved.metadata.labels
    assert followed(moved, NEW) == moved


def test_the_hand_over_says_which_launcher_it_is() -> None:
    start = handed_over("Scheduling", status={"nodeName": "", "activePods": {POD_UID: ""}})
    decision = rules.decide(start, [pod()], NOW, Surroundings(launcher_image=NEW))
    assert decision.vmi is not None
    assert decision.vmi.status.phase == "Scheduled"
    assert decision.vmi.status.launcher_container_image_version == OLD


def test_a_running_machine_is_followed() -> None:
    decision = rules.decide(handed_over("Running"), [pod()], NOW, Surroundings(launcher_image=NEW))
    assert decision.vmi is not None
    assert names.LABEL_OUTDATED_LAUNCHER in decision.vmi.metadata.labels


def test_the_wish_to_leave_is_a_condition_for_as_long_as_it_holds() -> None:
    source = {names.ANNOTATION_EVICTION_SOURCE: "descheduler", "mine": "1"}
    marked = handed_over("Running", status={"evacuationNodeName": NODE}, metadata={"annotations": source})
    asked = followed(marked, NEW)
    assert is_true(asked.status.conditions, "EvictionRequested")
    assert asked.metadata.annotations == source
    left = followed(replace(asked, status=replace(asked.status, evacuation_node_name="")), NEW)
    assert not is_true(left.status.conditions, "EvictionRequested")
    assert left.metadata.annotations == {"mine": "1"}
