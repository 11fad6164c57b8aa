"""Evictions of launcher Pods."""

from __future__ import annotations

from typing import Any

import pytest
from unit.api.fakecluster import FakeCluster, meta
from unit.api.reviews import CONFIG, hooks, review

from virt_core.apis.meta import Condition, OwnerReference
from virt_core.apis.migrationstate import VirtualMachineInstanceMigrationState
from virt_core.apis.pods import Pod, PodSpec
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus
from virt_core.kube.configvalues import ClusterConfig

PATH = "/pod-eviction-validate"


def launcher(**labels: str) -> Pod:
    metadata = meta(
        "virt-launcher-m-x",
        uid="p1",
        labels={"kubevirt.io": "virt-launcher", **labels},
        annotations={"kubevirt.io/domain": "m"},
    )
    return Pod(metadata=metadata, spec=PodSpec(node_name="n1"))


def machine(strategy: str | None, migratable: str = "True", phase: str = "Running", **status: Any) -> Any:
    condition = Condition(type="LiveMigratable", status=migratable)
    status = {"active_pods": {launcher().metadata.uid: "n1"}, **status}
    return VirtualMachineInstance(
        metadata=meta("m", resource_version="7"),
        spec=VirtualMachineInstanceSpec(eviction_strategy=strategy),
        status=VirtualMachineInstanceStatus(phase=phase, node_name="n1", conditions=[condition], **status),
    )


def evict(
    cluster: FakeCluster,
    name: str = "virt-launcher-m-x",
    dry_run: bool = False,
    options: object = None,
    config: ClusterConfig = CONFIG,
    **annotations: str,
) -> Any:
    metadata = {"name": name, "namespace": "default", "annotations": annotations}
    eviction = {"kind": "Eviction", "metadata": metadata, "deleteOptions": options}

    def admit(request: Any) -> Any:
        request.dry_run = dry_run
        return hooks(cluster, config)[PATH](request)

    return review(admit, eviction)


@pytest.mark.parametrize(
    ("strategy", "migratable", "code", "marks"),
    [
        ("LiveMigrate", "True", 429, True),
        ("LiveMigrate", "False", 429, False),
        ("LiveMigrateIfPossible", "True", 429, True),
        ("LiveMigrateIfPossible", "False", 200, False),
        ("External", "False", 429, True),
        ("None", "True", 200, False),
        (None, "True", 200, False),
    ],
)
def test_strategies(strategy: str | None, migratable: str, code: int, marks: bool) -> None:
    cluster = FakeCluster(launcher(), machine(strategy, migratable))
    response = evict(cluster)
    assert (200 if response["allowed"] else response["status"]["code"]) == code
    assert bool(cluster.patches) is marks
    if marks:
        _, operations = cluster.patches[0]
        assert operations[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
        assert operations[1] == {"op": "add", "path": "/status/evacuationNodeName", "value": "n1"}
        assert response["status"]["message"] == 'Eviction triggered evacuation of VMI "default/m"'


def test_who_cannot_move_is_told_why() -> None:
    tied = machine("LiveMigrate", "False")
    tied.status.conditions[0].message = "the guest uses a device of its node"
    message = evict(FakeCluster(launcher(), tied))["status"]["message"]
    assert "VMI m must migrate to be evicted, but cannot: the guest uses a device of its node; stop the VMI" in message


def test_who_does_not_run_yet_is_not_marked() -> None:
    cluster = FakeCluster(launcher(), machine("LiveMigrate", phase="Scheduled"))
    assert "it is Scheduled, not Running" in evict(cluster)["status"]["message"]
    assert not cluster.patches


def test_who_is_being_deleted_may_go() -> None:
    going = machine("LiveMigrate")
    going.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    cluster = FakeCluster(launcher(), going)
    assert evict(cluster)["allowed"]
    assert not cluster.patches


def test_the_cluster_says_what_a_machine_does_not() -> None:
    cluster = FakeCluster(launcher(), machine(None))
    response = evict(cluster, config=ClusterConfig(eviction_strategy="LiveMigrate"))
    assert response["status"]["code"] == 429
    assert cluster.patches


def test_a_dry_run_marks_nothing() -> None:
    cluster = FakeCluster(launcher(), machine("LiveMigrate"))
    assert evict(cluster, dry_run=True)["status"]["code"] == 429
    assert evict(cluster, options={"dryRun": ["All"]})["status"]["code"] == 429
    assert not cluster.patches
    evict(cluster, options={"gracePeriodSeconds": 1})
    assert cluster.patches


def test_a_launcher_that_the_machine_does_not_record_marks_nothing() -> None:
    """Whoever may create Pods may make one that looks like the launcher, and evict that."""
    false = launcher()
    false.metadata.uid = "p-false"
    cluster = FakeCluster(false, machine("LiveMigrate"))
    assert evict(cluster)["allowed"]
    assert not cluster.patches


def test_a_machine_that_already_moves_is_marked_once() -> None:
    cluster = FakeCluster(launcher(), machine("LiveMigrate", evacuation_node_name="n1"))
    assert evict(cluster)["status"]["message"].startswith("Evacuation in progress")
    assert not cluster.patches


def test_the_descheduler_leaves_its_name() -> None:
    cluster = FakeCluster(launcher(), machine("LiveMigrate"))
    evict(cluster, **{"requested-by": "sigs.k8s.io/descheduler"})
    paths = [operation["path"] for operation in cluster.patches[0][1]]
    assert paths[-2:] == ["/metadata/annotations", "/metadata/annotations/kubevirt.io~1eviction-source"]


@pytest.mark.parametrize(
    "objects",
    [
        [],
        [launcher()],
        [launcher(), machine("LiveMigrate", phase="Succeeded")],
        [Pod(metadata=meta("virt-launcher-m-x"), spec=PodSpec(node_name="n1")), machine("LiveMigrate")],
    ],
)
def test_others_may_go(objects: list[Any]) -> None:
    assert evict(FakeCluster(*objects))["allowed"]


@pytest.mark.parametrize(
    ("pods", "completed", "allowed"), [({"p2": "n2"}, False, False), ({}, False, True), ({"p2": "n2"}, True, True)]
)
def test_where_a_machine_moves_to_stays_until_it_is_there(pods: dict[str, str], completed: bool, allowed: bool) -> None:
    target = launcher(**{"kubevirt.io/migrationJobUID": "j"})
    target.metadata.uid, target.spec.node_name = "p2", "n2"
    move = VirtualMachineInstanceMigrationState(migration_uid="j", target_node="n2", completed=completed)
    vmi = machine("None", active_pods={"p1": "n1"} | pods, migration_state=move)
    cluster = FakeCluster(target, vmi)
    assert evict(cluster)["allowed"] is allowed
    assert not cluster.patches


def test_disks_stay_while_the_machine_runs() -> None:
    owner = OwnerReference(api_version="v1", kind="Pod", name="virt-launcher-m-x", uid="u", controller=True)
    plugged = Pod(metadata=meta("hp-volume-1", owner_references=[owner]), spec=PodSpec(node_name="n1"))
    busy = FakeCluster(plugged, launcher(), machine("None"))
    assert evict(busy, "hp-volume-1")["status"]["code"] == 429
    assert evict(FakeCluster(plugged, launcher(), machine("None", phase="Failed")), "hp-volume-1")["allowed"]
