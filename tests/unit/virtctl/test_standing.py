"""One sentence for each situation, and the command that helps."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from framework.machines import ALL, condition, event, facts, pod, upto, vm, vmi

from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.migration import VirtualMachineInstanceMigration as Job
from virt_core.apis.vm import VirtualMachine, VirtualMachineStartFailure, VirtualMachineStateChangeRequest
from virt_core.apis.volumes import Volume
from virtctl.explain.standing import standing
from virtctl.explain.words import Standing, duration

SCHEDULED = {"nodeName": "node1"}


def says(found: Standing, *parts: str) -> None:
    for part in parts:
        assert part in found.sentence, found.sentence
    assert found.sentence.endswith(".")
    assert ".." not in found.sentence
    can_be_typed(found.next)


def can_be_typed(command: str) -> None:
    """As it stands, in any shell."""
    assert shlex.split(command, comments=True)[0] in ("kubectl", "virtctl", "virt-local")
    assert not set("();&|<>`$") & set(command), command


def test_running_with_address_and_time() -> None:
    nics = [{"name": "default", "ipAddress": "10.1.2.3"}]
    stamps = [{"phase": "Running", "phaseTransitionTimestamp": "2026-01-01T12:00:02Z"}]
    status: dict[str, Any] = {**SCHEDULED, "interfaces": nics, "phaseTransitionTimestamps": stamps}
    found = standing(facts(vmi("Running", ALL, **status), now=32))
    says(found, "Running on node1 for 30 s", "its start took 1.55 s", "10.1.2.3")
    assert found.next == "virtctl console guest -n default"
    assert found.final
    assert not found.failed


def test_a_guest_that_shows_no_life_is_told_of() -> None:
    silent = condition("GuestSilent", "True", "NoLease", "it has taken no lease")
    found = standing(facts(vmi("Running", ALL, **SCHEDULED, conditions=[silent]), now=61))
    says(found, "Running on node1", "but it has taken no lease")


def test_running_without_address_or_not_ready_says_so() -> None:
    machine = vmi("Running", ALL, **SCHEDULED, conditions=[condition("Ready", "False", "X", "the probe fails")])
    says(standing(facts(machine)), "no address", "not Ready: the probe fails")


def test_volumes_that_are_not_in_the_guest_are_told_with_their_reason() -> None:
    volumes = [
        {"name": "data", "phase": "Pending", "message": "PVC data not found", "hotplugVolume": {}},
        {"name": "old", "phase": "Detaching", "message": "Deleted hotplug attachment pod x", "hotplugVolume": {}},
        {"name": "fine", "target": "vda"},
    ]
    machine = vmi("Running", ALL, **SCHEDULED, volumeStatus=volumes)
    machine.spec.volumes = [Volume(name="data"), Volume(name="fine")]
    found = standing(facts(machine))
    says(found, 'Volume "data" is not in the guest yet (Pending): PVC data not found', 'Volume "old" is on its way out')
    assert '"fine"' not in found.sentence
    scheduled = vmi("Scheduled", upto("handed-over"), **SCHEDULED, volumeStatus=volumes)
    scheduled.spec.volumes = machine.spec.volumes
    says(standing(facts(scheduled, pods=[pod()])), "waits for its volumes", "PVC data not found")


def test_paused() -> None:
    paused = condition("Paused", "True", "PausedByUser", "VMI was paused by user", since=1)
    found = standing(facts(vmi("Running", ALL, **SCHEDULED, conditions=[paused]), now=61))
    says(found, "paused for 60 s: VMI was paused by user")
    assert found.next.startswith("virtctl unpause vmi guest")


def test_failed_repeats_the_reason_and_its_condition() -> None:
    conditions = [
        condition("Ready", "False", "GuestNotRunning", "Guest VM is not reported as running"),
        condition("Synchronized", "False", "LauncherFailed", "QEMU was killed by signal 9 (SIGKILL)"),
    ]
    found = standing(facts(vmi("Failed", ALL, reason="LauncherFailed", conditions=conditions)))
    says(found, "Failed (LauncherFailed): QEMU was killed by signal 9 (SIGKILL)")
    assert found.failed
    assert found.final


def test_failed_falls_back_to_events_then_to_the_pod() -> None:
    machine = vmi("Failed", reason="LauncherFailed")
    says(standing(facts(machine, events=[event("VirtualMachineInstance", "SyncFailed", "no kernel")])), "no kernel")
    ended = [{"name": "compute", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]
    found = standing(facts(machine, pods=[pod("Failed", containerStatuses=ended)]))
    says(found, "container compute of its Pod virt-launcher-guest-abc exited with code 137 (OOMKilled)")
    assert found.next == "kubectl logs virt-launcher-guest-abc -n default"
    says(standing(facts(vmi("Failed"))), "Failed (no reason given)")


def test_a_bad_spec_is_to_be_corrected() -> None:
    found = standing(facts(vmi("Failed", reason="InvalidSpec"), pods=[pod()]))
    assert found.next.startswith("kubectl delete vmi guest -n default")


def test_succeeded() -> None:
    assert standing(facts(vmi("Succeeded", ALL))).final


def test_pending_names_what_kept_the_pod_from_being_created() -> None:
    refused = condition("Synchronized", "False", "FailedCreate", 'pods is forbidden: exceeded quota "q".')
    says(standing(facts(vmi("Pending", upto("accepted"), conditions=[refused]))), 'exceeded quota "q"', "without a Pod")


def test_pending_knows_it_from_an_event_too() -> None:
    note = event("VirtualMachineInstance", "FailedCreate", "admission webhook denied")
    says(standing(facts(vmi("Pending", upto("accepted")), events=[note])), "FailedCreate: admission webhook denied")


def test_pending_in_time_and_over_it() -> None:
    machine = vmi("Pending", upto("accepted"))
    says(
        standing(facts(machine, now=2)), "has waited 2.00 s for virt-controller to create the launcher Pod (limit 10 s)"
    )
    late = standing(facts(machine, now=40))
    says(late, "which is 30 s over its limit of 10 s")
    assert late.next == "kubectl logs -n virtpod -l kubevirt.io=virt-controller --prefix --tail=100"
    here = standing(facts(machine, now=40, local_instance="vp"))
    assert here.next == "virt-local logs virt-controller --instance vp"


def test_the_log_of_the_handler_is_that_of_the_machines_node() -> None:
    """On two nodes there are two: which one to look at is known."""
    machine = vmi("Scheduled", upto("handed-over"), nodeName="node2")
    found = standing(facts(machine, now=45.65, pods=[pod("Running", node="node2")], local_instance="lab"))
    assert found.next == "virt-local logs virt-handler@node2 --instance lab"


def test_scheduling_unschedulable() -> None:
    reason = "0/1 nodes are available: 1 Insufficient memory."
    conditions = [condition("PodScheduled", "False", "Unschedulable", reason)]
    found = standing(facts(vmi("Scheduling", upto("pod-created")), pods=[pod(node="", conditions=conditions)]))
    says(found, "no node accepts its Pod virt-launcher-guest-abc", "1 Insufficient memory")
    assert found.next == "kubectl describe pod virt-launcher-guest-abc -n default"


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError"])
def test_scheduling_container_trouble(reason: str) -> None:
    waiting = {"name": "compute", "state": {"waiting": {"reason": reason, "message": "no such image x:v9"}}}
    found = standing(facts(vmi("Scheduling", upto("pod-created")), pods=[pod(containerStatuses=[waiting])]))
    says(found, f"on node1 cannot start: container compute: {reason}: no such image x:v9")


def test_scheduling_trouble_in_the_words_of_the_vmi_where_it_has_them() -> None:
    """The controller repeats the node's cause with the path of the field that the user wrote."""
    waiting = {"name": "compute", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such host"}}}
    note = event(
        "VirtualMachineInstance", "ErrImagePull", "the image of spec.volumes[0] is not available: no such host"
    )
    machine, stuck = vmi("Scheduling", upto("pod-created")), [pod(containerStatuses=[waiting])]
    found = standing(facts(machine, pods=stuck, events=[note]))
    assert found.sentence == "It is Scheduling: the image of spec.volumes[0] is not available: no such host."
    unrelated = event("VirtualMachineInstance", "Odd", "something else")
    says(standing(facts(machine, pods=stuck, events=[unrelated])), "ErrImagePull: no such host")


def test_scheduling_trouble_that_only_events_know() -> None:
    note = event("Pod", "FailedMount", "volume disk-0: image x:v9 not found")
    creating = {"name": "compute", "state": {"waiting": {"reason": "ContainerCreating"}}}
    machine = vmi("Scheduling", upto("pod-created"))
    says(standing(facts(machine, pods=[pod(containerStatuses=[creating])], events=[note])), "image x:v9 not found")


def test_scheduling_without_trouble_waits_for_the_node() -> None:
    found = standing(facts(vmi("Scheduling", upto("pod-created")), now=3, pods=[pod()]))
    says(found, "the scheduler and the node to start the launcher Pod (limit 60 s)")
    assert found.next.startswith("kubectl describe pod virt-launcher-guest-abc")


def test_scheduling_and_the_pod_is_gone() -> None:
    says(standing(facts(vmi("Scheduling", upto("pod-created")))), "its Pod has disappeared")
    unreadable = facts(vmi("Scheduling", upto("pod-created")), unread=("Pods",))
    says(standing(unreadable), "has waited")


def test_scheduled_and_the_pod_died() -> None:
    ended = [{"name": "compute", "state": {"terminated": {"exitCode": 1}}}]
    found = standing(
        facts(vmi("Scheduled", upto("handed-over"), **SCHEDULED), pods=[pod("Failed", containerStatuses=ended)])
    )
    says(found, "exited with code 1")


def test_scheduled_names_the_missing_handoff_its_owner_and_the_excess() -> None:
    machine = vmi("Scheduled", upto("handed-over"), **SCHEDULED)
    found = standing(facts(machine, now=45.65, pods=[pod("Running")]))
    says(
        found,
        "Scheduled on node1 and has waited 45 s for virt-netsetup to wire the Pod's network",
        "15 s over its limit of 30 s",
    )
    assert "virt-handler" in found.next


def test_scheduled_repeats_what_the_handler_reports() -> None:
    broken = condition("Synchronized", "False", "NetworkSetupFailed", "nft: no such table")
    machine = vmi("Scheduled", upto("handed-over"), **SCHEDULED, conditions=[broken])
    says(standing(facts(machine, pods=[pod("Running")])), "virt-handler reports: nft: no such table")


def test_scheduled_believes_only_events_since_the_handover() -> None:
    machine = vmi("Scheduled", {**upto("handed-over"), "handed-over": 50.0}, **SCHEDULED)
    old = event("VirtualMachineInstance", "FailedCreate", "old story", 1)
    new = event("VirtualMachineInstance", "SyncFailed", "no space left on device", 55)
    assert "old story" not in standing(facts(machine, now=60, pods=[pod("Running")], events=[old])).sentence
    says(standing(facts(machine, now=60, pods=[pod("Running")], events=[old, new])), "no space left on device")


def test_deleting() -> None:
    machine = vmi("Running", ALL, **SCHEDULED)
    machine.metadata.deletion_timestamp = "2026-01-01T12:00:10Z"
    machine.metadata.finalizers = ["f1"]
    says(
        standing(facts(machine, now=25, pods=[pod("Running")])),
        "Its deletion has taken 15 s so far",
        "30 s to shut down",
    )
    says(standing(facts(machine, now=25)), "yet to remove its finalizers (f1)")


def test_unknown_node() -> None:
    says(standing(facts(vmi("Unknown", ALL, **SCHEDULED))), "node1 does not answer")


def test_a_phase_of_a_newer_server() -> None:
    says(standing(facts(vmi("Dreaming", ALL))), "Its phase is Dreaming")


def test_vm_that_is_stopped_failing_or_about_to_start() -> None:
    for strategy in ("Halted", "Manual"):
        stopped = standing(facts(None, vm=vm(runStrategy=strategy)))
        says(stopped, f"It is stopped: its runStrategy is {strategy}.")
        assert stopped.next == "virtctl start guest -n default"
        assert stopped.final
    says(standing(facts(None, vm=vm(running=False))), "runStrategy is Halted")
    says(standing(facts(None, vm=vm(runStrategy="Always"))), "virt-controller should make one")
    failing = vm(runStrategy="Always")
    from virt_core.apis.meta import Condition

    failing.status.conditions = [Condition(type="Failure", status="True", message="quota")]
    found = standing(facts(None, vm=failing))
    says(found, "quota")
    assert found.failed


def test_a_vm_that_was_asked_to_start_is_about_to() -> None:
    asked = vm(runStrategy="Manual")
    asked.status.state_change_requests = [VirtualMachineStateChangeRequest(action="Start")]
    says(standing(facts(None, vm=asked)), "virt-controller should make one")


def test_a_vm_whose_guest_ended_by_itself_rests() -> None:
    """RerunOnFailure starts a VM that is new, and one that failed."""
    says(standing(facts(None, vm=vm(runStrategy="RerunOnFailure"))), "virt-controller should make one")
    ended = vm(runStrategy="RerunOnFailure")
    ended.status.run_strategy = "RerunOnFailure"
    found = standing(facts(None, vm=ended))
    says(found, "stopped: its guest ended by itself", "only after a failure")
    assert found.next == "virtctl start guest -n default"


def test_a_vm_whose_starts_fail_says_why_and_when_it_is_tried_again() -> None:
    """CrashLoopBackOff: the VMI is gone, but its last Event has the cause."""
    failing = vm(runStrategy="Always")
    failing.status.start_failure = VirtualMachineStartFailure(
        consecutive_fail_count=3, last_failed_vmi_uid="u9", retry_after_timestamp="2026-01-01T12:01:30Z"
    )
    note = event("VirtualMachineInstance", "SyncFailed", "no such kernel /boot/x.")
    found = standing(facts(None, now=5, vm=failing, events=[note]))
    says(found, "failed to start 3 times in a row", "due in 85 s", "SyncFailed: no such kernel /boot/x.")
    assert found.failed
    assert not found.final, "it is tried again by itself"
    assert found.next == "kubectl get events -n default --field-selector involvedObject.name=guest"
    says(standing(facts(None, now=95, vm=failing)), "the next try is due: its Events do not say why")


def test_the_pod_that_has_the_guest_counts_however_old_it_is() -> None:
    own, other = pod("Running"), pod("Pending")
    other.metadata.uid = "p2"
    own.metadata.creation_timestamp, other.metadata.creation_timestamp = "2026-01-01T12:00:00Z", "2026-01-01T12:00:09Z"
    assert facts(vmi("Running", ALL, **SCHEDULED), pods=[other, own]).pod is own


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.00 s"),
        (0.424, "0.42 s"),
        (12.4, "12 s"),
        (119, "119 s"),
        (300, "5 min"),
        (10800, "3 h"),
        (200000, "2 d"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_kubelets_words_about_a_mount_become_the_missing_object() -> None:
    """The kubelet names the volume and the mount; what the user has to make is the Secret."""
    message = 'MountVolume.SetUp failed for volume "data" : secret "late" not found'
    waiting = [{"name": "compute", "state": {"waiting": {"reason": "ContainerCreating"}}}]
    found = standing(
        facts(
            vmi("Scheduling", upto("pod-created")),
            pods=[pod("Pending", containerStatuses=waiting)],
            events=[event("Pod", "FailedMount", message)],
        )
    )
    says(found, "there is no Secret default/late", message)


def test_a_change_of_the_size_that_waits_is_told_with_its_reason() -> None:
    held = condition("HotMemoryChange", "False", "PodResizeInfeasible", "node node1 cannot give so much")
    found = standing(facts(vmi("Running", ALL, **SCHEDULED, conditions=[held])))
    says(found, "A change of its memory is pending: node node1 cannot give so much.")


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        ("True", "", "Volumes are on their way to other claims: data from a to b."),
        ("False", "DestinationNotReady", "Volumes are to be on other claims, and wait: data from a to b."),
        ("False", "VolumesChangeCancellation", "A change of volumes is being given up: data from a to b."),
    ],
)
def test_volumes_that_go_to_other_claims_are_told_of(status: str, reason: str, words: str) -> None:
    told = condition("VolumesChange", status, reason, "data from a to b")
    moved = {"migratedVolumes": [{"volumeName": "data"}]}
    says(standing(facts(vmi("Running", ALL, **SCHEDULED, conditions=[told], **moved))), words)
    if reason == "VolumesChangeCancellation":
        assert "other claims" not in standing(facts(vmi("Running", ALL, **SCHEDULED, conditions=[told]))).sentence


def test_a_vm_that_may_not_start_says_why() -> None:
    told = condition("ManualRecoveryRequired", "True", "VolumesNotCopied", "the machine ended before")
    machine = from_plain({"metadata": {"name": "guest"}, "status": {"conditions": [told]}}, VirtualMachine)
    says(standing(facts(None, vm=machine)), "It may not start: the machine ended before.")


def test_what_waits_for_a_restart_is_told() -> None:
    told = condition("RestartRequired", "True", "", "a restart is needed: the clock changed")
    machine = from_plain({"metadata": {"name": "guest"}, "status": {"conditions": [told]}}, VirtualMachine)
    found = standing(facts(vmi("Running", ALL, **SCHEDULED), vm=machine))
    says(found, "Part of what its VM says is not in force: a restart is needed: the clock changed.")


LEAVES = {"nodeName": "node1", "evacuationNodeName": "node1"}
MOVABLE = condition("LiveMigratable", "True", "", "")


def move(phase: str, reason: str = "") -> Job:
    status = {"phase": phase, "migrationState": {"failureReason": reason}}
    return from_plain({"metadata": {"name": "out"}, "spec": {"vmiName": "guest"}, "status": status}, Job)


@pytest.mark.parametrize(
    ("strategy", "job", "words"),
    [
        (
            "LiveMigrate",
            None,
            "It was asked to leave node node1; virt-controller has not made a migration for that yet.",
        ),
        (None, move("Running"), "It was asked to leave node node1. Migration out is under way:"),
        ("LiveMigrate", move("Failed", "no node takes it"), "; virt-controller tries again, each time after a longer"),
        ("LiveMigrate", move("Succeeded"), "; virt-controller has not made a migration for that yet."),
        ("External", None, "; by its evictionStrategy (External) that is for somebody else to do."),
        ("None", None, "; by its evictionStrategy (None) nobody moves it."),
    ],
)
def test_a_machine_that_must_leave_its_node_says_who_is_to_move_it(
    strategy: str | None, job: Job | None, words: str
) -> None:
    machine = vmi("Running", ALL, **LEAVES, conditions=[MOVABLE])
    machine.spec.eviction_strategy = strategy
    says(standing(facts(machine, job=job)), words)


def test_a_machine_that_must_leave_and_cannot_says_why() -> None:
    tied = condition("LiveMigratable", "False", "DisksNotLiveMigratable", "volume data is on its node alone.")
    machine = vmi("Running", ALL, **LEAVES, conditions=[tied])
    says(standing(facts(machine)), "asked to leave node node1, and cannot be moved: volume data is on its node alone.")
    failed = standing(facts(machine, job=move("Failed", "no node takes it")))
    says(failed, "cannot be moved: volume data", "Its last move (vmim out) failed: no node takes it.")
    paused = condition("Paused", "True", "PausedByUser", "")
    says(standing(facts(vmi("Running", ALL, **LEAVES, conditions=[tied, paused]))), "paused", "cannot be moved: volume")


def test_who_may_not_read_migrations_is_told_no_tale_about_them() -> None:
    machine = vmi("Running", ALL, **LEAVES, conditions=[MOVABLE])
    says(standing(facts(machine, unread=("Migrations",))), "It was asked to leave node node1.")


def test_a_machine_that_may_stay_says_nothing_of_leaving() -> None:
    assert "leave" not in standing(facts(vmi("Running", ALL, **SCHEDULED, conditions=[MOVABLE]))).sentence


def disk(phase: str, progress: str = "", why: str = "") -> DataVolume:
    told = [condition("Running", "False", "Error", why)] if why else []
    status = {"phase": phase, "progress": progress, "conditions": told}
    return from_plain({"metadata": {"name": "root"}, "status": status}, DataVolume)


def waits_for(*disks: DataVolume, strategy: str = "Always") -> Standing:
    return standing(facts(None, vm=vm(runStrategy=strategy), disks=list(disks)))


def test_a_disk_that_is_being_filled_is_told_with_how_far_it_is() -> None:
    found = waits_for(disk("Succeeded", "100.0%"), disk("ImportInProgress", "43.21%"))
    says(found, "Its disk root is being filled: 43 % [########            ]")
    assert found.next == "kubectl get dv root -n default -w"
    assert not found.final
    says(waits_for(disk("ImportScheduled", "N/A")), "Its disk root is being filled (phase ImportScheduled)")
    says(waits_for(disk("")), "(phase not set yet)")
    says(standing(facts(vmi("Pending"), disks=[disk("ImportInProgress", "9%")])), "is being filled: 9 %")


def test_a_disk_that_cannot_be_filled_is_the_end_of_it() -> None:
    found = waits_for(disk("Failed", why="it is no disk image."))
    says(found, "Its disk root cannot be filled: it is no disk image.")
    assert (found.final, found.failed) == (True, True)
    says(waits_for(disk("Failed")), "does not say why")


def test_disks_that_are_done_hold_nobody_up_and_a_stopped_vm_is_stopped() -> None:
    says(waits_for(disk("Succeeded"), disk("WaitForFirstConsumer")), "It has no instance yet")
    says(waits_for(disk("ImportInProgress", "1%"), strategy="Halted"), "It is stopped")


def test_a_hibernated_vm_goes_on_at_its_next_start() -> None:
    plain = to_plain(vm(runStrategy="Halted"))
    plain.setdefault("status", {})["hibernation"] = {
        "phase": "Saved",
        "claimName": "sleep",
        "endTimestamp": "2026-01-01T12:00:05Z",
    }
    found = standing(facts(None, vm=from_plain(plain, VirtualMachine)))
    says(found, "hibernated since 2026-01-01T12:00:05Z", "claim sleep")
    assert found.next == "virtctl start guest -n default"
