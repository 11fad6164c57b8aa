"""Every decision of the VMI controller, on plain objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from framework.vmis import CREATED, NODE, POD_UID, ended_pod, handed_over, pod, running_pod, vmi
from msgspec.structs import replace

from virt_controller.vmi.decide import HANDLER_FIRST_S, REFUSAL_PAUSE_S, STUCK_AFTER_END_S, Decision, decide, scheduling
from virt_core.apis import names
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import get_condition
from virt_core.kube.writes import difference

NOW = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
LATER = {
    "metadata": {
        "name": "virt-launcher-vm-later",
        "uid": "aaaaaaaa-0000-0000-0000-000000000002",
        "creationTimestamp": "2026-01-01T00:00:05Z",
    }
}
DELETED = {"deletionTimestamp": "2026-01-01T00:00:05Z"}


def condition(decision: Decision, type: str) -> tuple[str, str, str]:
    assert decision.vmi is not None
    found = get_condition(decision.vmi.status.conditions, type)
    assert found is not None, decision.vmi.status.conditions
    return found.status, found.reason, found.message


def writes_nothing(decision: Decision, before: VirtualMachineInstance) -> bool:
    return decision.vmi is None or not difference(before, decision.vmi)


def test_pending_without_a_pod_gets_one() -> None:
    decision = decide(vmi(), [], NOW)
    assert decision == Decision(create_pod=True)


def test_a_vmi_that_no_webhook_touched_starts_too_and_gets_the_finalizer() -> None:
    bare = vmi(phase="", metadata={"finalizers": []})
    assert decide(bare, [], NOW).create_pod
    assert scheduling(bare, POD_UID, NOW).metadata.finalizers == [names.FINALIZER_VMI]


def test_scheduling_stamps_the_handoff_once() -> None:
    first = scheduling(vmi(), POD_UID, NOW)
    again = scheduling(first, POD_UID, NOW + timedelta(seconds=9))
    assert [h.name for h in first.status.handoffs] == ["accepted", "pod-created"]
    assert first.status.handoffs == again.status.handoffs
    assert first.status.phase_transition_timestamps == again.status.phase_transition_timestamps
    assert first.status.handoffs[1].time == "2026-01-01T00:00:10.000000Z"


def test_pod_that_was_never_recorded_is_a_stranger_and_another_is_made() -> None:
    """Whoever may create Pods can name the VMI as the owner; only the record counts."""
    decision = decide(vmi(), [running_pod()], NOW)
    assert decision == Decision(create_pod=True, strangers=(running_pod(),))


@pytest.mark.parametrize("stranger", [ended_pod(0, **LATER), running_pod(**LATER)])
def test_stranger_beside_a_running_launcher_changes_nothing_and_goes(stranger: Pod) -> None:
    """The newest is not the guest's: a Pod that runs `true` must not end a VM."""
    before = handed_over("Running", status={"conditions": [{"type": "Ready", "status": "True"}]})
    decision = decide(before, [running_pod(), stranger], NOW)
    assert writes_nothing(decision, before)
    assert (decision.strangers, decision.delete_pods) == ((stranger,), ())


def test_stranger_is_not_taken_over_while_the_launcher_starts() -> None:
    before = scheduling(vmi(), POD_UID, NOW)
    decision = decide(before, [pod(), running_pod(**LATER)], NOW)
    assert writes_nothing(decision, before)
    assert len(decision.strangers) == 1


def test_nobody_keeps_a_deleted_vmi_with_a_pod_of_his_own() -> None:
    decision = decide(handed_over("Running", metadata=DELETED), [running_pod(**LATER)], NOW)
    assert decision.vmi is not None
    assert decision.vmi.metadata.finalizers == []
    assert len(decision.delete_pods) == 1


def test_waiting_for_a_pod_writes_nothing() -> None:
    before = scheduling(vmi(), POD_UID, NOW)
    waiting = pod(state={"waiting": {"reason": "ContainerCreating"}})
    decision = decide(before, [waiting], NOW)
    assert writes_nothing(decision, before)
    assert 0 < decision.recheck_s <= 60


REFUSED = {"reason": "UnexpectedAdmissionError", "message": "Pod was rejected: no such device"}


#: What a kubelet writes of a container that never was.
UNKNOWN = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "could not be located"}}


@pytest.mark.parametrize("state", [None, {"waiting": {"reason": "ContainerCreating"}}, UNKNOWN])
def test_pod_that_its_node_refused_is_followed_by_another(state: dict[str, object] | None) -> None:
    before = scheduling(vmi(), POD_UID, NOW)
    refused = pod(phase="Failed", state=state, status=REFUSED)
    assert decide(before, [refused], NOW - timedelta(seconds=9)) == Decision(recheck_s=REFUSAL_PAUSE_S - 1)
    decision = decide(before, [refused], NOW)
    assert decision.create_pod
    assert not decision.delete_pods, "if the creation fails, the refusal must still be known"
    assert decision.notes[0].reason == "UnexpectedAdmissionError"
    assert "no such device" in decision.notes[0].message


def test_the_recorded_refusal_counts() -> None:
    older = pod(phase="Failed", status=REFUSED, metadata=LATER["metadata"] | {"creationTimestamp": CREATED})
    newer = pod(phase="Failed", status=REFUSED, metadata={"creationTimestamp": "2026-01-01T00:00:09Z"})
    decision = decide(scheduling(vmi(), POD_UID, NOW), [newer, older], NOW)
    assert decision == Decision(recheck_s=REFUSAL_PAUSE_S - 1, strangers=(older,))


def test_refused_pod_goes_when_its_successor_is_recorded() -> None:
    refused = pod(phase="Failed", status=REFUSED)
    successor = running_pod(**LATER)
    decision = decide(scheduling(vmi(), successor.metadata.uid, NOW), [refused, successor], NOW)
    assert decision.vmi is not None
    assert decision.vmi.status.phase == "Scheduled"
    assert decision.strangers == (refused,)


def test_refusals_come_to_an_end() -> None:
    before = scheduling(vmi(), POD_UID, NOW)
    decision = decide(before, [pod(phase="Failed", status=REFUSED)], NOW + timedelta(seconds=60))
    assert decision.vmi is not None
    assert decision.vmi.status.phase == "Failed"
    assert "no such device" in decision.notes[0].message


def test_pod_whose_container_ran_is_no_refusal() -> None:
    ran = pod(phase="Failed", state={"terminated": {"exitCode": 1, "startedAt": CREATED}}, status=REFUSED)
    decision = decide(scheduling(vmi(), POD_UID, NOW), [ran], NOW)
    assert decision.vmi is not None
    assert decision.vmi.status.phase == "Failed"


def test_running_pod_hands_over_in_one_write() -> None:
    before = scheduling(vmi(), POD_UID, NOW)
    decision = decide(
        before, [running_pod(metadata={"annotations": {names.ANNOTATION_MEMORY_OVERHEAD: "104857600"}})], NOW
    )
    assert decision.vmi is not None
    status = decision.vmi.status
    assert (status.phase, status.node_name, status.active_pods) == ("Scheduled", NODE, {POD_UID: NODE})
    assert decision.vmi.metadata.labels[names.LABEL_NODE_NAME] == NODE
    assert status.qos_class == "Burstable"
    assert status.memory is not None
    assert status.memory.memory_overhead == "100Mi"
    assert [h.name for h in status.handoffs][-2:] == ["pod-started", "handed-over"]


def test_pod_without_running_compute_is_not_handed_over() -> None:
    before = scheduling(vmi(), POD_UID, NOW)
    assert writes_nothing(decide(before, [pod(phase="Running")], NOW), before)


def test_unschedulable_is_told_and_taken_back() -> None:
    stuck = pod(
        spec={"nodeName": ""},
        status={
            "phase": "Pending",
            "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes fit"}
            ],
        },
    )
    decision = decide(scheduling(vmi(), POD_UID, NOW), [stuck], NOW)
    assert condition(decision, "PodScheduled") == ("False", "Unschedulable", "0/1 nodes fit")
    assert decision.vmi is not None
    after = decide(decision.vmi, [running_pod()], NOW)
    assert after.vmi is not None
    assert get_condition(after.vmi.status.conditions, "PodScheduled") is None


def test_a_pod_that_waits_for_dedicated_cpus_names_the_label() -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes fit."}
    stuck = pod(
        spec={"nodeName": "", "nodeSelector": {"kubevirt.io/cpumanager": "true"}},
        status={"phase": "Pending", "conditions": [scheduled]},
    )
    _, _, message = condition(decide(scheduling(vmi(), POD_UID, NOW), [stuck], NOW), "PodScheduled")
    assert message.startswith("0/1 nodes fit. Dedicated CPUs need a node with the label kubevirt.io/cpumanager=true")


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName"])
def test_image_trouble_names_volume_and_image(reason: str) -> None:
    waiting = {"waiting": {"reason": reason, "message": 'image "example.internal/guest:v1" not found'}}
    decision = decide(scheduling(vmi(), POD_UID, NOW), [pod(state=waiting)], NOW)
    status, told, message = condition(decision, "Synchronized")
    assert (status, told) == ("False", reason)
    assert 'volume "root"' in message
    assert "example.internal/guest:v1" in message
    assert decision.vmi is not None
    assert decision.vmi.status.phase == "Scheduling"
    assert [note.reason for note in decision.notes] == [reason]


def test_launcher_image_trouble_names_the_launcher() -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}
    decision = decide(scheduling(vmi(), POD_UID, NOW), [pod(state=waiting)], NOW)
    assert "example.internal/launcher:v1" in condition(decision, "Synchronized")[2]


def test_back_and_forth_of_pull_reasons_is_told_once() -> None:
    def state(reason: str) -> list[Pod]:
        return [pod(state={"waiting": {"reason": reason, "message": "example.internal/guest:v1"}})]

    first = decide(scheduling(vmi(), POD_UID, NOW), state("ErrImagePull"), NOW)
    assert first.vmi is not None
    second = decide(first.vmi, state("ImagePullBackOff"), NOW)
    assert writes_nothing(second, first.vmi)
    assert not second.notes


def test_pod_that_does_not_start_in_time_is_told_once() -> None:
    late = NOW + timedelta(seconds=60)
    first = decide(scheduling(vmi(), POD_UID, NOW), [pod()], late)
    assert condition(first, "Synchronized")[1] == "PodNotStarted"
    assert first.vmi is not None
    assert writes_nothing(decide(first.vmi, [pod()], late), first.vmi)


def test_hand_over_takes_trouble_back() -> None:
    late = decide(scheduling(vmi(), POD_UID, NOW), [pod()], NOW + timedelta(seconds=60))
    assert late.vmi is not None
    after = decide(late.vmi, [running_pod()], NOW)
    assert after.vmi is not None
    assert get_condition(after.vmi.status.conditions, "Synchronized") is None


def test_pod_gone_while_scheduling_fails() -> None:
    decision = decide(scheduling(vmi(), POD_UID, NOW), [], NOW)
    assert decision.vmi is not None
    assert (decision.vmi.status.phase, decision.vmi.status.reason) == ("Failed", "PodGone")


def test_pod_failed_while_scheduling_tells_how_it_ended() -> None:
    decision = decide(scheduling(vmi(), POD_UID, NOW), [ended_pod(3, "no libvirt")], NOW)
    assert decision.vmi is not None
    assert decision.vmi.status.reason == "LauncherFailed"
    assert (
        condition(decision, "Synchronized")[2]
        == "the launcher Pod ended: the container compute exited with code 3: no libvirt"
    )
    assert condition(decision, "Ready")[0] == "False"


def test_oom_kill_is_named() -> None:
    terminated = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:01Z"}}
    decision = decide(scheduling(vmi(), POD_UID, NOW), [pod(phase="Failed", state=terminated)], NOW)
    assert "137 (OOMKilled)" in condition(decision, "Synchronized")[2]


def test_handler_speaks_first_about_a_dead_launcher() -> None:
    before = handed_over("Running")
    early = decide(before, [ended_pod(137, finished="2026-01-01T00:00:09Z")], NOW)
    assert early.vmi is None
    assert 0 < early.recheck_s <= HANDLER_FIRST_S
    late = decide(before, [ended_pod(137, finished="2026-01-01T00:00:05Z")], NOW)
    assert late.vmi is not None
    assert (late.vmi.status.phase, late.vmi.status.reason) == ("Failed", "LauncherFailed")


def test_clean_exit_that_no_handler_told_succeeds() -> None:
    decision = decide(handed_over("Running"), [ended_pod(0)], NOW)
    assert decision.vmi is not None
    assert decision.vmi.status.phase == "Succeeded"


def test_pod_gone_after_hand_over_fails() -> None:
    decision = decide(handed_over("Running"), [], NOW)
    assert decision.vmi is not None
    assert (decision.vmi.status.phase, decision.vmi.status.reason) == ("Failed", "LauncherFailed")


def test_running_vmi_with_running_pod_is_left_alone() -> None:
    before = handed_over("Running", status={"conditions": [{"type": "Ready", "status": "True"}]})
    assert writes_nothing(decide(before, [running_pod()], NOW), before)


def test_ready_follows_the_pod_there_and_back() -> None:
    before = handed_over("Running", status={"conditions": [{"type": "Ready", "status": "True"}]})
    unready = running_pod()
    unready.status.conditions = [facts_condition("False")]
    taken = decide(before, [unready], NOW)
    assert condition(taken, "Ready")[0] == "False"
    ready = running_pod()
    ready.status.conditions = [facts_condition("True")]
    assert taken.vmi is not None
    assert condition(decide(taken.vmi, [ready], NOW), "Ready")[0] == "True"


def test_ready_of_a_paused_guest_is_the_nodes_affair() -> None:
    conditions = [{"type": "Ready", "status": "False", "reason": "PausedByUser"}, {"type": "Paused", "status": "True"}]
    before = handed_over("Running", status={"conditions": conditions})
    assert writes_nothing(decide(before, [running_pod()], NOW), before)


def facts_condition(status: str):  # type: ignore[no-untyped-def]
    from virt_core.apis.pods import PodCondition

    return PodCondition(type="Ready", status=status, reason="ContainersNotReady", message="compute is not ready")


def test_deleted_vmi_deletes_its_pods_also_finished_ones() -> None:
    for existing in (running_pod(), ended_pod(1)):
        decision = decide(handed_over("Running", metadata=DELETED), [existing], NOW)
        assert decision.delete_pods == (existing,)


def test_deleted_vmi_waits_for_a_terminating_pod() -> None:
    before = handed_over("Running", metadata=DELETED | {"labels": {}})
    decision = decide(before, [running_pod(metadata=DELETED)], NOW)
    assert not decision.delete_pods
    assert decision.vmi is not None
    assert names.FINALIZER_VMI in decision.vmi.metadata.finalizers
    assert condition(decision, "Ready")[1] == "PodTerminating"


def test_deleted_before_a_pod_existed_goes_in_one_write() -> None:
    decision = decide(vmi(metadata=DELETED), [], NOW)
    assert not decision.create_pod
    assert decision.vmi is not None
    assert decision.vmi.metadata.finalizers == []
    assert decision.vmi.status.phase == "Failed"


def test_foreign_finalizers_stay() -> None:
    decision = decide(vmi(metadata=DELETED | {"finalizers": ["x/y", names.FINALIZER_VMI]}), [], NOW)
    assert decision.vmi is not None
    assert decision.vmi.metadata.finalizers == ["x/y"]


def test_final_vmi_keeps_its_finished_pod_for_the_logs() -> None:
    before = handed_over("Failed")
    assert decide(before, [ended_pod(1)], NOW) == Decision()


def test_launcher_that_does_not_end_with_its_vmi_is_deleted() -> None:
    stamps = [{"phase": "Failed", "phaseTransitionTimestamp": "2026-01-01T00:00:10Z"}]
    before = handed_over("Failed", status={"phaseTransitionTimestamps": stamps})
    assert decide(before, [running_pod()], NOW).recheck_s == STUCK_AFTER_END_S
    late = decide(before, [running_pod()], NOW + timedelta(seconds=STUCK_AFTER_END_S))
    assert [p.metadata.uid for p in late.delete_pods] == [POD_UID]
    kept = replace(before, metadata=replace(before.metadata, annotations={names.ANNOTATION_KEEP_LAUNCHER: "true"}))
    assert decide(kept, [running_pod()], NOW + timedelta(seconds=STUCK_AFTER_END_S)) == Decision()


def test_final_without_pods_loses_its_finalizer() -> None:
    decision = decide(handed_over("Succeeded"), [], NOW)
    assert decision.vmi is not None
    assert decision.vmi.metadata.finalizers == []
    assert decision.vmi.status.phase == "Succeeded"


def test_decisions_do_not_change_what_they_look_at() -> None:
    before = scheduling(vmi(), POD_UID, NOW)
    copy = scheduling(vmi(), POD_UID, NOW)
    decide(before, [ended_pod(1)], NOW)
    decide(before, [running_pod()], NOW)
    assert before == copy
