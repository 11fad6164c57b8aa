"""VM migrate: the job that it makes, what it refuses, its forecast; and how a move goes, from the node."""

from __future__ import annotations

import json
from typing import Any

import pytest
from functional.api.rig import Rig, make_vm, make_vmi
from functional.api.test_http import BEARER, call
from functional.api.test_machines import DRY, put

from virt_core.apis.base import from_plain
from virt_core.apis.devices import Disk
from virt_core.apis.meta import StatusCause, StatusDetails
from virt_core.apis.migrationstate import VirtualMachineInstanceMigrationState
from virt_core.apis.policy import MigrationPolicy
from virt_core.apis.volumes import Volume
from virt_core.kube.errors import ApiError, Invalid
from virt_protos.launcher.v1 import launcher_pb2


@pytest.fixture(autouse=True)
def _a_vm(rig: Rig) -> None:
    rig.client.vms["vm1"] = make_vm(strategy="Always")


def test_it_makes_a_job_and_says_which(rig: Rig) -> None:
    code, answer = put(rig, "migrate", {"addedNodeSelector": {"zone": "a"}})
    assert (code, answer["kind"], answer["metadata"]["name"]) == (
        202, "VirtualMachineInstanceMigration", "kubevirt-migrate-vm-x",
    )  # fmt: skip
    ((job, dry),) = rig.client.jobs
    assert (job.spec.vmi_name, job.spec.added_node_selector, dry) == ("vm1", {"zone": "a"}, False)
    assert (job.metadata.generate_name, job.metadata.namespace) == ("kubevirt-migrate-vm-", "default")
    assert not rig.node.forecasts, "nobody asked for one, and it costs the guest something"


def test_it_needs_its_own_right(rig: Rig) -> None:
    put(rig, "migrate")
    asked = rig.client.access[-1].spec.resource_attributes
    assert asked is not None
    assert (asked.verb, asked.resource, asked.subresource) == ("update", "virtualmachines", "migrate")
    rig.client.allowed = False
    assert put(rig, "migrate", DRY)[0] == 403
    assert len(rig.client.jobs) == 1
    assert not rig.node.forecasts


def test_no_vm_and_no_instance_are_not_found(rig: Rig) -> None:
    rig.client.vms.clear()
    assert put(rig, "migrate")[0] == 404
    rig.client.vms["vm1"] = make_vm()
    rig.client.vmis.clear()
    code, answer = put(rig, "migrate")
    assert (code, answer["details"]["kind"]) == (404, "virtualmachineinstance")


def test_only_what_runs_can_be_moved(rig: Rig) -> None:
    rig.client.vmis["vm1"] = make_vmi(phase="Scheduled")
    code, answer = put(rig, "migrate")
    assert (code, answer["reason"]) == (409, "Conflict")
    assert not rig.client.jobs


def test_why_a_machine_cannot_be_moved_is_passed_on(rig: Rig) -> None:
    why = "VMI 'vm1' cannot be live-migrated: HostDeviceNotLiveMigratable: it has a device of its node"
    rig.client.create_failures = [ApiError(400, "BadRequest", why)]
    code, answer = put(rig, "migrate")
    assert (code, answer["message"]) == (409, why)
    cause = StatusCause(reason="FieldValueInvalid", message="no label", field="spec.addedNodeSelector[a b]")
    rig.client.create_failures = [Invalid(422, "Invalid", "no", StatusDetails(causes=[cause]))]
    code, answer = put(rig, "migrate", {"addedNodeSelector": {"a b": "c"}})
    assert (code, answer["details"]["causes"][0]["field"]) == (422, "spec.addedNodeSelector[a b]")


def test_a_dry_run_is_judged_not_stored_and_foreseen(rig: Rig) -> None:
    rig.client.vmis["vm1"].spec.volumes = [
        from_plain({"name": "root", "containerDisk": {"image": "x"}}, Volume),
        from_plain({"name": "data", "persistentVolumeClaim": {"claimName": "c"}}, Volume),
    ]
    rig.client.vmis["vm1"].spec.domain.devices.disks = [
        from_plain({"name": name, "disk": {"bus": "virtio"}}, Disk) for name in ("root", "data")
    ]
    policy = {
        "metadata": {"name": "slow"},
        "spec": {"selectors": {"virtualMachineInstanceSelector": {"a": "b"}}, "bandwidthPerMigration": "1Mi"},
    }
    rig.client.policies = [from_plain(policy, MigrationPolicy)]
    rig.client.vmis["vm1"].metadata.labels = {"a": "b"}
    code, answer = put(rig, "migrate", DRY)
    assert (code, answer["verdict"], answer["message"]) == (202, "WillNotConverge", "will not converge")
    assert (answer["dirtyBytesPerSecond"], answer["expectedSeconds"]) == (7, 1.5)
    assert [dry for _, dry in rig.client.jobs] == [True]
    (asked,) = rig.node.forecasts
    assert (asked.bandwidth_limit, list(asked.copied_volumes), asked.vmi.uid) == (1 << 20, ["root"], "uid-vm1")


def test_a_dry_run_is_good_though_nobody_can_foresee_it(rig: Rig) -> None:
    rig.node.refuse = "the launcher does not answer"
    code, answer = put(rig, "migrate", DRY)
    assert (code, answer.get("verdict", "Unknown")) == (202, "Unknown")
    assert "does not answer" in answer["message"]


# -- how it goes


def progress(rig: Rig) -> tuple[int, Any]:
    return call(rig, "GET", rig.sub("migrationprogress"), headers=BEARER)


def test_a_machine_that_never_moved_has_no_progress(rig: Rig) -> None:
    assert progress(rig)[0] == 404


def test_progress_comes_from_the_node_that_the_guest_has_left(rig: Rig) -> None:
    state = VirtualMachineInstanceMigrationState(source_node="node1", target_node="node2", migration_uid="job")
    rig.client.vmis["vm1"].status.migration_state = state
    rig.client.vmis["vm1"].status.node_name = "node2"
    assert progress(rig)[0] == 503
    rig.node.move = launcher_pb2.Move(
        uid="job", mode="PreCopy", total_bytes=100, processed_bytes=60, remaining_bytes=40, started_us=1_000_000,
        ended_us=3_500_000, downtime_ms=42,
    )  # fmt: skip
    code, answer = progress(rig)
    assert code == 200, json.dumps(answer)
    assert (answer["migrationUID"], answer["remainingBytes"], answer["downtimeMilliseconds"]) == ("job", 40, 42)
    assert (answer["elapsedSeconds"], answer["ended"]) == (2.5, True)
    asked = rig.client.access[-1].spec.resource_attributes
    assert asked is not None
    assert (asked.verb, asked.subresource) == ("get", "migrationprogress")
