"""What a Pod is to its VMI follows from the VMI's record and the job that made it, never from age or labels alone."""

from __future__ import annotations

from typing import Any

from framework.podworld import pod_lists, vmis
from hypothesis import given, settings
from tests.framework.vmis import UID, pod, vmi

from virt_core.apis import names
from virt_core.apis.podroles import (
    PodRole,
    Role,
    active,
    active_pod,
    having,
    is_stranger,
    launchers_on,
    owner_uid,
    recorded,
    role_of,
)
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance

A, B, C = "aaaaaaaa-0000-0000-0000-000000000001", "aaaaaaaa-0000-0000-0000-000000000002", "hp"


def machine(**status: Any) -> Any:
    return vmi(status={"phase": "Running", **status})


def launcher(uid: str, **changes: Any) -> Any:
    return pod(metadata={"uid": uid, **changes})


def test_the_only_recorded_pod_is_active_before_and_after_the_hand_over() -> None:
    assert active(machine(activePods={A: ""})) == PodRole(A, "", Role.ACTIVE)
    assert active(machine(activePods={A: "n1"}, nodeName="n1")) == PodRole(A, "n1", Role.ACTIVE)


def test_a_move_has_a_target_until_the_node_changes_hands() -> None:
    move = {"targetNode": "n2", "sourceNode": "n1"}
    both = {A: "n1", B: "n2"}
    before = recorded(machine(activePods=both, nodeName="n1", migrationState=move))
    after = recorded(machine(activePods=both, nodeName="n2", migrationState=move))
    assert {uid: each.role for uid, each in before.items()} == {A: Role.ACTIVE, B: Role.TARGET}
    assert {uid: each.role for uid, each in after.items()} == {A: Role.SOURCE, B: Role.ACTIVE}


def test_of_two_that_could_have_the_guest_none_acts() -> None:
    assert active(machine(activePods={A: "n1", B: "n1"}, nodeName="n1")) is None
    assert active(machine(activePods={A: "", B: ""})) is None


def test_a_node_sees_its_own_launchers_only() -> None:
    moving = machine(activePods={A: "n1", B: "n2"}, nodeName="n1", migrationState={"targetNode": "n2"})
    assert launchers_on(moving, "n2") == [PodRole(B, "n2", Role.TARGET)]
    assert launchers_on(moving, "n3") == []


def test_pods_of_hot_plugged_volumes_are_attachments() -> None:
    volumes = [{"name": "v", "hotplugVolume": {"attachPodUID": C}}]
    seen = machine(activePods={A: "n1"}, nodeName="n1", volumeStatus=volumes)
    assert recorded(seen)[C] == PodRole(C, "n1", Role.ATTACHMENT)
    assert launchers_on(seen, "n1") == [PodRole(A, "n1", Role.ACTIVE)]


def test_what_is_not_recorded_is_a_stranger_however_it_looks() -> None:
    seen = machine(activePods={A: "n1"}, nodeName="n1")
    newest = launcher(B, creationTimestamp="2126-01-01T00:00:00Z")
    assert role_of(newest, seen) is None
    assert is_stranger(newest, seen)
    assert active_pod(seen, [newest]) is None
    assert active_pod(seen, [newest, launcher(A)]) == launcher(A)


def test_a_job_is_known_before_it_is_recorded() -> None:
    labels = {names.LABEL_APP: names.APP_LAUNCHER, names.LABEL_MIGRATION_JOB_UID: "job"}
    assert role_of(launcher(B, labels=labels), machine()) is Role.TARGET


def test_the_first_user_of_a_claim_is_the_one_that_is_recorded() -> None:
    """Whoever may create Pods may set the annotation too."""
    says_so = {names.ANNOTATION_EPHEMERAL_PROVISIONING: "true"}
    seen = machine(provisioningPodUID=A)
    assert role_of(launcher(A, annotations=says_so), seen) is Role.PROVISIONING
    assert role_of(launcher(B, annotations=says_so), seen) is None
    assert is_stranger(launcher(B, annotations=says_so), seen)
    assert launchers_on(seen, "") == []


def test_the_owner_is_compared_by_uid() -> None:
    job = {"labels": {names.LABEL_MIGRATION_JOB_UID: "job"}}
    assert role_of(pod(owner_uid="other", metadata={"uid": B, **job}), machine()) is None
    assert not is_stranger(pod(owner_uid="other", metadata={"uid": B}), machine())
    assert UID != "other"


@settings(max_examples=150, deadline=None)
@given(vmis(), pod_lists())
def test_one_pod_at_most_has_the_guest_whatever_pods_there_are(
    machine: VirtualMachineInstance, pods: list[Pod]
) -> None:
    has_guest = having(Role.ACTIVE, machine, pods)
    assert len(has_guest) <= 1
    known = recorded(machine)
    for each in pods:
        role = role_of(each, machine)
        assert role is None or each.metadata.uid in known or owner_uid(each) == UID
        assert role not in (Role.ACTIVE, Role.SOURCE) or each.metadata.uid in known
    assert having(Role.ACTIVE, machine, pods[::-1]) == has_guest, "neither age nor order decides"
