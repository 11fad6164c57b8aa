"""Migration jobs, phase by phase, and what a lost target, a rival and a limit do to them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from framework.vmis import NODE, POD_UID, UID, handed_over

from virt_controller.migration.decide import (
    QUOTA_S,
    START_S,
    UNSCHEDULABLE_S,
    Chance,
    Decision,
    decide,
    is_over_quota,
    must_look,
    over_quota,
)
from virt_controller.migration.limits import quota_words
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.migrationstate import MigrationConfiguration
from virt_core.apis.pods import Container, ContainerStatus, Pod
from virt_core.apis.policy import MigrationPolicy
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumes import UtilityVolume
from virt_core.kube.configvalues import MigrationLimits
from virt_core.kube.movesettings import best_policy, settle

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FREE = Chance(settings=MigrationConfiguration(allow_post_copy=True), policy="strict")
OTHER = "node2"


def job(phase: str = "", **meta: Any) -> Job:
    plain = {
        "metadata": {
            "name": "move",
            "namespace": "default",
            "uid": "job",
            "finalizers": [names.FINALIZER_MIGRATION],
            **meta,
        },
        "spec": {"vmiName": "vm"},
        "status": {"phase": phase},
    }
    return from_plain(plain, Job)


def vmi(move: dict[str, Any] | None = None, **status: Any) -> VirtualMachineInstance:
    pods = {POD_UID: NODE} | ({"t": OTHER} if move else {})
    if move:
        sides = {"sourceNode": NODE, "targetNode": OTHER, "sourcePod": "source", "targetPod": "target"}
        status["migrationState"] = {"migrationUid": "job", **sides, **move}
    return handed_over("Running", status={"nodeName": NODE, "activePods": pods, **status})


def source_pod(*, phase: str = "Running", ended: str = "") -> Pod:
    found = pod(phase=phase)
    found.metadata.name, found.metadata.uid, found.metadata.labels = "source", POD_UID, {}
    if ended:
        state = {"terminated": {"exitCode": 1, "finishedAt": ended}}
        found.status.container_statuses = [from_plain({"name": "compute", "state": state}, ContainerStatus)]
    return found


def pod(*, phase: str = "Running", running: bool = True, **status: Any) -> Pod:
    owner = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "name": "vm",
        "uid": UID,
        "controller": True,
    }
    state = {"running": {}} if running else {"waiting": {"reason": "ContainerCreating"}}
    return from_plain(
        {
            "metadata": {
                "name": "target",
                "namespace": "default",
                "uid": "t",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {names.LABEL_MIGRATION_JOB_UID: "job"},
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": OTHER if running else ""},
            "status": {"phase": phase, "containerStatuses": [{"name": "compute", "state": state}], **status},
        },
        Pod,
    )


def decided(
    a_job: Job, machine: VirtualMachineInstance | None, *pods: Pod, chance: Chance = FREE, late_s: float = 0
) -> Decision:
    pods = pods if any(each.metadata.uid == POD_UID for each in pods) else (source_pod(), *pods)
    return decide(a_job, machine, pods, NOW + timedelta(seconds=late_s), chance)


def phase(decision: Decision) -> str:
    assert decision.job is not None
    return decision.job.status.phase


def phases(decision: Decision) -> list[str]:
    assert decision.job is not None
    return [stamp.phase for stamp in decision.job.status.phase_transition_timestamps]


def reason(decision: Decision) -> str:
    assert decision.job is not None
    assert decision.job.status.phase == "Failed"
    assert decision.job.status.migration_state is not None
    assert decision.job.metadata.finalizers == []
    return decision.job.status.migration_state.failure_reason


def test_a_job_that_may_go_gets_its_pod() -> None:
    decision = decided(job(), vmi())
    assert decision.create_pod
    assert phases(decision) == ["Pending", "Scheduling"]


def test_a_job_that_must_wait_makes_nothing() -> None:
    decision = decided(job(), vmi(), chance=replace(FREE, wait="5 migrations run"))
    assert (decision.create_pod, phase(decision), decision.recheck_s) == (False, "Pending", 3.0)


def test_a_machine_with_utility_volumes_stays_until_they_are_gone() -> None:
    """The job says so once, goes on when they are gone, and gives up in time."""
    machine = vmi()
    machine.spec.utility_volumes = [UtilityVolume(name="u", claim_name="c")]
    waits = decided(job(), machine)
    assert (phase(waits), waits.create_pod, len(waits.notes)) == ("Pending", False, 1)
    assert waits.job is not None
    [told] = waits.job.status.conditions
    assert (told.type, told.reason) == ("migrationBlockedByUtilityVolumes", "UtilityVolumesPresent")
    again = decided(waits.job, machine, late_s=10)
    assert (phase(again), again.notes) == ("Pending", ())
    on = decided(waits.job, vmi(), late_s=10)
    assert on.create_pod
    assert on.job is not None
    assert on.job.status.conditions == []
    assert "utility volumes: u" in reason(decided(waits.job, machine, late_s=151))
    short = job(annotations={names.ANNOTATION_MIGRATION_UTILITY_VOLUMES: "5"})
    begun = decided(short, machine).job
    assert begun is not None
    assert phase(decided(begun, machine, late_s=6)) == "Failed"


def test_what_cannot_be_moved_is_said() -> None:
    stuck = {"conditions": [{"type": "LiveMigratable", "status": "False", "reason": "R", "message": "a disk"}]}
    assert reason(decided(job(), vmi(**stuck))) == "the VMI cannot be moved: a disk"
    assert reason(decided(job(), None)) == "the VMI does not exist"
    assert "another" in reason(decided(job(), vmi(), chance=replace(FREE, rival="another")))
    assert "deleted before it began" in reason(decided(job(deletionTimestamp="2026-01-01T00:00:00Z"), vmi(), pod()))


def test_both_nodes_hear_of_it_when_the_pod_is_there() -> None:
    decision = decided(job("Scheduling"), vmi(), with_user_faults(pod()))
    assert phases(decision) == ["Scheduled", "PreparingTarget"]
    assert decision.vmi is not None
    state = decision.vmi.status.migration_state
    assert state is not None
    assert (state.migration_uid, state.source_node, state.target_node, state.target_pod) == (
        "job",
        NODE,
        OTHER,
        "target",
    )
    assert (state.migration_policy_name, state.migration_configuration) == ("strict", FREE.settings)
    assert decision.vmi.metadata.labels[names.LABEL_MIGRATION_TARGET_NODE] == OTHER
    assert decision.vmi.status.active_pods == {POD_UID: NODE, "t": OTHER}
    assert decision.vmi.status.node_name == NODE, "the guest is where it was"


def test_pods_that_the_guest_left_before_are_forgotten() -> None:
    machine = vmi(activePods={POD_UID: NODE, "older": "node3"})
    decision = decided(job("Scheduling"), machine, pod())
    assert decision.vmi is not None
    assert decision.vmi.status.active_pods == {POD_UID: NODE, "t": OTHER}


def test_what_another_job_left_goes_once_the_guest_cannot_be_there() -> None:
    stray = pod()
    stray.metadata.name, stray.metadata.uid = "older", "o"
    stray.metadata.labels = {names.LABEL_MIGRATION_JOB_UID: "vanished"}
    assert decided(job(), vmi(), stray).delete_pods == ()
    assert decided(job("Scheduling"), vmi(), stray, pod()).delete_pods == (stray,)


def test_a_pod_that_no_node_takes_is_given_up() -> None:
    refused = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no CPU"}]
    }
    waiting = pod(phase="Pending", running=False, **refused)
    assert phase(decided(job("Scheduling"), vmi(), waiting, late_s=UNSCHEDULABLE_S - 1)) == "Scheduling"
    over = decided(job("Scheduling"), vmi(), waiting, late_s=UNSCHEDULABLE_S)
    assert reason(over).endswith("no node takes it: no CPU")
    assert over.delete_pods == (waiting,)
    impatient = job("Scheduling", annotations={names.ANNOTATION_MIGRATION_UNSCHEDULABLE: "7"})
    assert phase(decided(impatient, vmi(), waiting, late_s=8)) == "Failed"


@pytest.mark.parametrize(
    ("move", "wanted"),
    [
        ({}, "PreparingTarget"),
        ({"targetNodeAddress": "10.0.0.2"}, "TargetReady"),
        ({"targetNodeAddress": "10.0.0.2", "startTimestamp": "2026-01-01T00:00:00Z"}, "Running"),
        ({"completed": True}, "Succeeded"),
        ({"completed": True, "failed": True, "failureReason": "x"}, "Failed"),
    ],
)
def test_the_phase_follows_the_nodes(move: dict[str, Any], wanted: str) -> None:
    machine = vmi({"x": 0, **move})
    assert phase(decided(job("PreparingTarget"), machine, pod())) == wanted


@pytest.mark.parametrize("lost", [[], [pod(phase="Failed")]])
def test_a_move_has_failed_when_its_target_cannot_have_the_guest(lost: list[Pod]) -> None:
    decision = decided(job("Running"), vmi({"startTimestamp": "2026-01-01T00:00:00Z"}), *lost)
    assert decision.vmi is not None
    state = decision.vmi.status.migration_state
    assert state is not None
    assert (state.failed, state.completed) == (True, True)
    assert state.failure_reason.startswith("the target launcher Pod")
    assert names.LABEL_MIGRATION_TARGET_NODE not in decision.vmi.metadata.labels


def test_the_node_that_is_not_left_says_why_if_it_can() -> None:
    """A target that ended by itself only knows that nothing came any more."""
    stamp = "2026-01-01T00:00:00Z"
    done = {"terminated": {"exitCode": 0, "finishedAt": stamp}}
    ended = pod(phase="Succeeded", containerStatuses=[{"name": "compute", "state": done}])
    waits = decided(job("Running"), vmi({"startTimestamp": stamp}), ended, late_s=5)
    assert waits.vmi is None
    assert waits.recheck_s > 5
    late = decided(job("Running"), vmi({"startTimestamp": stamp}), ended, late_s=20)
    assert late.vmi is not None
    before = decided(job("PreparingTarget"), vmi({"x": 0}), ended, late_s=5)
    assert before.vmi is not None, "nobody else knows of a move that has not begun"


def test_a_target_that_is_only_being_deleted_may_still_have_it() -> None:
    """Its source lets the guest run again on our word, so the word must wait for the end."""
    ending = pod()
    ending.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    asked = vmi({"startTimestamp": "2026-01-01T00:00:00Z", "abortRequested": True})
    assert decided(job("Running"), asked, ending).vmi is None


def test_deleting_the_job_asks_for_the_end_of_it() -> None:
    gone = job("Running", deletionTimestamp="2026-01-01T00:00:00Z")
    machine = vmi({"startTimestamp": "2026-01-01T00:00:00Z"})
    decision = decided(gone, machine, pod())
    assert decision.vmi is not None
    assert decision.vmi.status.migration_state is not None
    assert decision.vmi.status.migration_state.abort_requested
    assert decision.job is not None
    assert decision.job.metadata.finalizers == [names.FINALIZER_MIGRATION]
    assert [(note.type, note.reason) for note in decision.notes] == [("Normal", "SuccessfulAbortMigration")]
    assert decision.alarm == "FailedAbortMigration"
    asked = vmi({"startTimestamp": "2026-01-01T00:00:00Z", "abortRequested": True})
    after = decided(gone, asked, pod())
    assert (after.vmi, after.notes) == (None, ())


def test_a_target_that_never_gets_ready_is_ended() -> None:
    begun = decided(job("Scheduling"), vmi(), pod()).job
    assert begun is not None
    late = decided(begun, vmi({"x": 0}), pod(), late_s=START_S + 1)
    assert late.delete_pods == (), "the source may have begun, and what we know may be old"
    assert late.vmi is not None
    assert late.vmi.status.migration_state is not None
    assert late.vmi.status.migration_state.abort_requested
    assert late.vmi.status.migration_state.failure_reason == "the target was not ready within 300 s"


def test_a_target_that_is_deleted_makes_the_source_give_up() -> None:
    ending = pod()
    ending.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    asked = decided(job("Running"), vmi({"startTimestamp": "2026-01-01T00:00:00Z"}), ending).vmi
    assert asked is not None
    assert asked.status.migration_state is not None
    assert (asked.status.migration_state.abort_requested, asked.status.migration_state.failed) == (True, False)


def test_a_guest_whose_launcher_ended_has_a_minute_to_arrive() -> None:
    begun, ended = job("Running"), source_pod(phase="Failed", ended="2026-01-01T00:00:00Z")
    machine = vmi({"targetNodeAddress": "10.0.0.2", "startTimestamp": "2026-01-01T00:00:00Z"})
    assert decided(begun, machine, ended, pod(), late_s=59).vmi is None
    lost = decided(begun, machine, ended, pod(), late_s=61).vmi
    assert lost is not None
    assert lost.status.migration_state is not None
    assert lost.status.migration_state.failed
    assert "did not arrive within 60 s" in lost.status.migration_state.failure_reason


def test_a_pod_that_a_cache_does_not_have_is_asked_for() -> None:
    begun, machine = job("Running"), vmi({"x": 0})
    assert must_look(begun, machine, [source_pod()])
    assert must_look(begun, machine, [pod()])
    assert not must_look(begun, machine, [source_pod(), pod()])
    assert must_look(job("Scheduling"), vmi(), [source_pod()])
    assert not must_look(job("Pending"), vmi(), [source_pod()])


def test_a_target_that_vanishes_before_the_hand_over_is_not_made_again() -> None:
    assert reason(decided(job("Scheduling"), vmi())) == "the target launcher Pod is gone"


def test_nobody_begins_while_a_move_without_a_job_goes_on() -> None:
    """Its job was removed by force. What a held guest may do follows from this one alone."""
    stray = vmi({"migrationUid": "vanished", "targetPod": "other"})
    other = pod()
    other.metadata.name, other.metadata.labels = "other", {names.LABEL_MIGRATION_JOB_UID: "vanished"}
    asked = decided(job(), stray, other)
    assert (phase(asked), asked.create_pod) == ("Pending", False)
    assert asked.vmi is not None
    assert asked.vmi.status.migration_state is not None
    assert (asked.vmi.status.migration_state.migration_uid, asked.vmi.status.migration_state.abort_requested) == (
        "vanished",
        True,
    )
    lost = decided(job(), stray)
    assert lost.vmi is not None
    assert lost.vmi.status.migration_state is not None
    assert lost.vmi.status.migration_state.failed


def test_what_is_left_of_a_failed_job_goes() -> None:
    marked = vmi({"failed": True, "completed": True})
    marked.metadata.labels[names.LABEL_MIGRATION_TARGET_NODE] = OTHER
    decision = decided(job("Failed"), marked, pod())
    assert [each.metadata.uid for each in decision.delete_pods] == ["t"]
    assert decision.vmi is not None
    assert names.LABEL_MIGRATION_TARGET_NODE not in decision.vmi.metadata.labels


def test_the_pod_that_the_guest_has_left_goes_once_it_has_ended() -> None:
    moved = vmi({"completed": True}, nodeName=OTHER)
    ended = source_pod(phase="Succeeded", ended="2026-01-01T00:00:00Z")
    assert decided(job("Succeeded"), moved, ended, pod()).delete_pods == (ended,)
    assert decided(job("Succeeded"), moved, source_pod(), pod()).delete_pods == ()


def test_the_job_tells_what_the_vmi_tells() -> None:
    told = decided(job("PreparingTarget"), vmi({"targetNodeAddress": "10.0.0.2"}), pod()).job
    assert told is not None
    assert told.status.migration_state is not None
    assert told.status.migration_state.target_node_address == "10.0.0.2"


def test_the_pod_that_has_the_guest_is_never_taken_for_a_target() -> None:
    """After a move the guest's own Pod still names the job."""
    moved = vmi({"completed": True}, nodeName=OTHER)
    assert decided(job("Failed"), moved, pod()).delete_pods == ()


def policy(name: str, machine: dict[str, str], namespace: dict[str, str], **spec: Any) -> MigrationPolicy:
    selectors = {"virtualMachineInstanceSelector": machine, "namespaceSelector": namespace}
    return from_plain({"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}, MigrationPolicy)


def test_the_policy_that_names_most_labels_wins() -> None:
    policies = [
        policy("b", {"a": "1"}, {}),
        policy("a", {"a": "1"}, {}),
        policy("c", {"a": "1"}, {"n": "1"}),
        policy("d", {"a": "1", "b": "2"}, {"n": "2"}),
        policy("e", {}, {}),
    ]
    chosen = best_policy(policies, {"a": "1", "b": "2"}, {"n": "1"})
    assert chosen is not None
    assert chosen.metadata.name == "c"
    tie = best_policy(policies, {"a": "1"}, {})
    assert tie is not None
    assert tie.metadata.name == "a"
    assert best_policy(policies, {}, {}) is None


def test_a_policy_goes_before_the_cluster() -> None:
    limits = MigrationLimits(bandwidth=5, allow_auto_converge=True, completion_timeout_per_gib_s=150)
    plain = settle(limits, None)
    assert (plain.bandwidth_per_migration, plain.allow_auto_converge, plain.allow_post_copy) == ("5", True, False)
    chosen = settle(limits, policy("p", {"a": "1"}, {}, allowPostCopy=True, bandwidthPerMigration="1Mi"))
    assert (chosen.bandwidth_per_migration, chosen.allow_post_copy) == ("1Mi", True)
    assert chosen.allow_workload_disruption, "who allows post-copy allows to disturb"


def test_the_job_has_the_forecast_of_the_machines_node() -> None:
    told = {"type": "MigrationForecast", "status": "False", "reason": "WillNotConverge", "message": "will not converge"}
    machine = vmi({"startTimestamp": "2026-01-01T00:00:00Z"}, conditions=[told])
    found = decide(job("TargetReady"), machine, [pod()], NOW, FREE).job
    assert found is not None
    (condition,) = found.status.conditions
    assert (condition.type, condition.status, condition.message) == ("migrationForecast", "False", "will not converge")
    again = decide(found, machine, [pod()], NOW + timedelta(seconds=1), FREE).job
    assert again == found, "nothing new, nothing to write"


def test_a_job_that_waits_says_why_once_and_no_more_when_it_goes() -> None:
    many = replace(FREE, wait="5 migrations run in the cluster, and no more than that may")
    waiting = decide(job(), vmi(), [], NOW, many).job
    assert waiting is not None
    (condition,) = waiting.status.conditions
    assert (condition.type, condition.message) == ("migrationWaiting", many.wait)
    other_number = replace(FREE, wait="6 migrations run in the cluster, and no more than that may")
    assert decide(waiting, vmi(), [], NOW, other_number).job == waiting, "nothing new, nothing to write"
    begun = decide(waiting, vmi(), [], NOW, FREE).job
    assert begun is not None
    assert (begun.status.phase, begun.status.conditions) == ("Scheduling", [])


def test_a_job_whose_target_does_not_fit_into_a_quota_waits_and_says_so_once() -> None:
    refusal = "exceeded quota: small, requested: cpu=100m, used: cpu=1, limited: cpu=1"
    first = over_quota(job(), refusal, NOW)
    assert (phase(first), first.recheck_s) == ("Pending", QUOTA_S)
    assert [(note.type, note.reason) for note in first.notes] == [("Warning", "FailedCreate")]
    assert first.job is not None
    assert [(each.type, each.status, each.message) for each in first.job.status.conditions] == [
        ("migrationRejectedByResourceQuota", "True", refusal)
    ]
    again = over_quota(first.job, refusal.replace("used: cpu=1", "used: cpu=2"), NOW)
    assert (again.job, again.notes) == (first.job, ())
    begun = decided(first.job, vmi())
    assert begun.create_pod
    assert begun.job is not None
    assert not is_over_quota(begun.job), "it goes on"


def test_only_the_words_of_a_quota_count() -> None:
    said = 'pods "virt-launcher-vm-x7x2c" is forbidden: exceeded quota: small, requested: cpu=100m'
    assert quota_words(said) == "exceeded quota: small, requested: cpu=100m"
    assert quota_words('pods "virt-launcher-vm-x7x2c" is forbidden: violates PodSecurity') == ""


def test_a_target_that_no_node_takes_is_told_of_once() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "2 nodes are full"}
    homeless = pod(phase="Pending", running=False, conditions=[condition])
    first = decided(job("Scheduling"), vmi(), homeless)
    assert [(note.type, note.reason) for note in first.notes] == [("Warning", "migrationTargetPodUnschedulable")]
    assert "2 nodes are full" in first.notes[0].message
    assert first.job is not None
    assert "2 nodes are full" in first.job.status.conditions[0].message
    again = decided(first.job, vmi(), homeless, late_s=5)
    assert (again.job, again.notes) == (first.job, ())
    taken = decided(first.job, vmi(), pod(), late_s=6)
    assert taken.vmi is not None
    assert taken.job is not None
    assert taken.job.status.conditions == []


def test_the_hand_over_says_what_the_target_needs_beside_the_guest() -> None:
    target = pod()
    target.metadata.annotations[names.ANNOTATION_MEMORY_OVERHEAD] = str(290 << 20)
    decision = decided(job("Scheduling"), vmi(), target)
    assert decision.vmi is not None
    assert decision.vmi.status.migration_state is not None
    assert decision.vmi.status.migration_state.target_memory_overhead == "290Mi"
    assert decision.alarm == "FailedHandOver"


def with_user_faults(target: Pod) -> Pod:
    limits = {names.RESOURCE_USERFAULTFD: "1"}
    target.spec.containers = [from_plain({"name": "compute", "resources": {"limits": limits}}, Container)]
    return target


def test_post_copy_needs_a_target_that_can_fetch_memory() -> None:
    decision = decided(job("Scheduling"), vmi(), with_user_faults(pod()))
    assert decision.notes == ()
    assert settings_of(decision).allow_post_copy is True


@pytest.mark.parametrize(("allowed", "told"), [(None, True), (True, True), (False, False)])
def test_without_post_copy_the_guest_may_be_paused_instead(allowed: bool | None, told: bool) -> None:
    """QEMU would end the move at its begin; and it is said."""
    wished = MigrationConfiguration(allow_post_copy=True, allow_workload_disruption=allowed)
    decision = decided(job("Scheduling"), vmi(), pod(), chance=Chance(settings=wished))
    found = settings_of(decision)
    assert (found.allow_post_copy, found.allow_workload_disruption) == (False, told)
    (note,) = decision.notes
    assert note.reason == "PostCopyNotPossible"
    assert f"not possible on node {OTHER}, which does not offer devices.kubevirt.io/userfaultfd" in note.message


def settings_of(decision: Decision) -> MigrationConfiguration:
    assert decision.vmi is not None
    assert decision.vmi.status.migration_state is not None
    found = decision.vmi.status.migration_state.migration_configuration
    assert found is not None
    return found
