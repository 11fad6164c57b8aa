"""What a machine brings along: volumes that were plugged in, NICs, their addresses, and its size."""

from __future__ import annotations

from typing import Any

import pytest
from framework.vmis import handed_over
from unit.handler.test_moving import NOW, source, target, view

from virt_core.apis.netplan import NetReport, NetReportInterface
from virt_core.apis.topology import Cpu, cpus_of
from virt_core.apis.vmi import VirtualMachineInstance
from virt_handler.decisions import hotplug, migratable, moving, nics
from virt_handler.decisions.hotplug import Mounts
from virt_handler.decisions.netplans import plan
from virt_handler.decisions.status import is_urgent, reported
from virt_handler.decisions.vocabulary import Action, Step, Task, Way, Work
from virt_protos.launcher.v1 import launcher_pb2 as pb

MOVE = {"migrationUid": "job", "sourceNode": "node1", "targetNode": "node2", "targetAttachmentPodUID": "there"}
EMPTY = pb.DOMAIN_STATE_ABSENT


def plugged(name: str, phase: str) -> dict[str, Any]:
    return {"name": name, "phase": phase, "hotplugVolume": {"attachPodUID": "here"}}


def vmi(*volumes: dict[str, Any], **status: Any) -> VirtualMachineInstance:
    spec = {
        "volumes": [
            {"name": v["name"], "persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}} for v in volumes
        ]
    }
    known = {"nodeName": "node1", "migrationState": MOVE, "volumeStatus": list(volumes), **status}
    return handed_over("Running", spec=spec, status=known)


def test_volumes_come_from_the_pod_of_this_node() -> None:
    machine = vmi(plugged("data", "Ready"), plugged("later", "AttachedToNode"))
    work = hotplug.work(hotplug.at_target(machine), Mounts(), None, None)
    assert [(each.name, each.pod_uid) for each in work.mount] == [("data", "there")]
    assert work.unmount == ()


def test_the_way_is_opened_when_the_volumes_are_there() -> None:
    machine = vmi(plugged("data", "Ready"), plugged("later", "Pending"))
    assert target(machine, view(EMPTY)).action is Action.NOTHING
    assert target(machine, view(EMPTY, mounts=Mounts())).action is Action.NOTHING
    assert target(machine, view(EMPTY, mounts=Mounts(frozenset({"data"})))).action is Action.PREPARE_TARGET
    assert target(vmi(), view(EMPTY)).action is Action.PREPARE_TARGET


def imaged(status: list[dict[str, Any]], image: str = "guest:v1") -> VirtualMachineInstance:
    """With a container disk, and an image of cloud-init that the guest could write to."""
    disks = [{"name": "root", "disk": {}}, {"name": "cloud", "disk": {}}]
    volumes = [
        {"name": "root", "containerDisk": {"image": image}},
        {"name": "cloud", "cloudInitNoCloud": {"userData": "x"}},
    ]
    spec = {"domain": {"devices": {"disks": disks}}, "volumes": volumes}
    return handed_over(
        "Running", spec=spec, status={"nodeName": "node1", "migrationState": MOVE, "volumeStatus": status}
    )


TOLD = [{"name": "cloud", "size": 65536}, {"name": "root", "containerDiskVolume": {"checksum": 77}}]


def test_the_disks_are_known_before_the_other_side_makes_itself_ready() -> None:
    """A tag may mean another image there, and a Secret may have changed since."""
    for known in ([], TOLD[:1], TOLD[1:]):
        assert source(imaged(known), view()).action is Action.DISK_FACTS
        assert target(imaged(known), view(EMPTY)).action is Action.NOTHING
    assert source(imaged(TOLD), view()).action is Action.NOTHING
    assert target(imaged(TOLD), view(EMPTY)).action is Action.PREPARE_TARGET
    assert target(imaged(TOLD[:1], "guest@sha256:00"), view(EMPTY)).action is Action.PREPARE_TARGET


def test_what_was_found_of_the_disks_is_written_at_once() -> None:
    done = view(disk_facts={"root": (77, 0), "cloud": (0, 65536)}, looking=Work(Task.DONE, asked="job"))
    before = imaged([])
    after = reported(before, done, Step(), NOW)
    known = {each.name: each for each in after.status.volume_status}
    assert known["root"].container_disk_volume is not None
    assert (known["root"].container_disk_volume.checksum, known["cloud"].size) == (77, 65536)
    assert is_urgent(before, after)


def test_disks_that_cannot_be_read_end_the_move_and_the_next_job_tries_again() -> None:
    broken = view(looking=Work(Task.FAILED, error="gone", asked="job"))
    told = reported(imaged([]), broken, Step(), NOW).status.migration_state
    assert told is not None
    assert told.failure_reason == "the machine's disks cannot be looked at: gone"
    assert source(imaged([]), broken).action is Action.NOTHING
    assert source(imaged([]), view(looking=Work(Task.FAILED, asked="older"))).action is Action.DISK_FACTS


def test_the_cpus_of_the_new_pod_are_told() -> None:
    cpus = (Cpu(cell=1, core=4, number=5), Cpu(cell=0, core=2, number=2))
    ready = view(EMPTY, way=Way("job", "10.0.0.2", {}, cpus), prepared=Work(Task.DONE))
    told = moving.arrival_told(vmi(), ready, "node2", NOW).status.migration_state
    assert told is not None
    assert told.target_cpu_set == [2, 5]
    assert sorted(cpus_of(told.target_node_topology)) == sorted(cpus)
    assert cpus_of("no JSON") == []


def test_a_volume_that_cannot_be_had_here_ends_the_move() -> None:
    machine = vmi(plugged("data", "Ready"))
    seen = view(EMPTY, mounts=Mounts(failures={"data": "it could not be brought into the Pod: no"}))
    told = moving.arrival_told(machine, seen, "node2", NOW).status.migration_state
    assert told is not None
    assert told.failed
    assert told.failure_reason.endswith('volume "data": it could not be brought into the Pod: no')


def on_bridge(**changes: Any) -> VirtualMachineInstance:
    interfaces = [
        {"name": "default", "masquerade": {}},
        {"name": "blue", "bridge": {}},
        {"name": "red", "bridge": {}, "state": "absent"},
        {"name": "green", "bridge": {}},
    ]
    networks = [{"name": n, "multus": {"networkName": n}} for n in ("blue", "red", "green")]
    known = [
        {"name": "default", "mac": "02:00:00:00:00:01", "ipAddresses": ["10.1.0.5"], "infoSource": "domain"},
        {
            "name": "blue",
            "mac": "02:00:00:00:00:02",
            "infoSource": "domain, multus-status",
            "ipAddresses": ["10.9.0.5"],
        },
        {"name": "red", "mac": "02:00:00:00:00:03", "infoSource": "domain, multus-status"},
        {"name": "green", "infoSource": "multus-status"},
    ]
    return handed_over(
        "Running",
        spec={
            "domain": {"devices": {"interfaces": interfaces}},
            "networks": [{"name": "default", "pod": {}}, *networks],
        },
        status={"nodeName": "node1", "migrationState": MOVE, "interfaces": known, **changes},
    )


def test_the_nics_that_the_machine_has_are_wired_with_their_own_addresses() -> None:
    """Behind a bridge the guest has the MAC of its first Pod, and a guard lets nothing else out."""
    machine = on_bridge()
    assert [nic.name for nic in nics.arriving(machine)] == ["default", "blue", "red"]
    wired = plan(machine, "pod", nics=nics.arriving(machine)).interfaces
    assert [nic.mac for nic in wired] == ["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"]


def report(*addresses: str) -> NetReport:
    return NetReport(
        interfaces=[
            NetReportInterface(name="default", pod_ips=["10.1.0.9/24"]),
            NetReportInterface(name="blue", pod_ips=list(addresses)),
        ]
    )


@pytest.mark.parametrize("addresses", [(), ("10.9.0.5/24",)])
def test_a_network_that_leaves_the_guest_its_address_will_do(addresses: tuple[str, ...]) -> None:
    assert nics.changed_address(on_bridge(), report(*addresses)) == ""


def test_a_network_that_gives_another_address_ends_the_move() -> None:
    """The guest would go on with the one that it has, and reach nobody."""
    seen = view(EMPTY, report=report("10.9.0.77/24"))
    told = moving.arrival_told(on_bridge(), seen, "node2", NOW).status.migration_state
    assert told is not None
    assert told.failure_reason == 'network "blue" gave the target the address 10.9.0.77, but the guest has 10.9.0.5'


def test_the_room_after_a_move_is_that_of_the_new_pod() -> None:
    """What was asked for meanwhile was booked for the Pod that the guest has left."""
    grown = vmi(
        podRoom={"sockets": 4}, currentCPUTopology={"sockets": 2, "cores": 1, "threads": 1}, activePods={"p": "node1"}
    )
    way = Way("job", "10.0.0.2", {})
    here = moving.arrival_told(grown, view(way=way, prepared=Work(Task.DONE)), "node2", NOW)
    assert here.status.node_name == "node2"
    assert here.status.pod_room is not None
    assert here.status.pod_room.sockets == 2
    assert moving.arrival_told(vmi(), view(way=way), "node2", NOW).status.pod_room is None


def test_the_overhead_after_a_move_is_that_of_the_new_pod() -> None:
    here = moving.arrival_told(
        vmi(
            migrationState=MOVE | {"targetMemoryOverhead": "290Mi"},
            memory={"memoryOverhead": "280Mi", "guestAtBoot": "1Gi"},
        ),
        view(way=Way("job", "10.0.0.2", {}), prepared=Work(Task.DONE)),
        "node2",
        NOW,
    )
    assert here.status.node_name == "node2"
    assert here.status.memory is not None
    assert (here.status.memory.memory_overhead, here.status.memory.guest_at_boot) == ("290Mi", "1Gi")


def test_what_the_other_pod_was_refused_is_not_said_of_this_one() -> None:
    refused = {"type": "HotVCPUChange", "status": "False", "reason": "PodResizeRefused"}
    waits = {"type": "HotMemoryChange", "status": "True", "reason": "WaitingForGuest"}
    cramped = vmi(conditions=[refused, waits], activePods={"p": "node1"})
    way = Way("job", "10.0.0.2", {})
    here = moving.arrival_told(cramped, view(way=way, prepared=Work(Task.DONE)), "node2", NOW)
    assert here.status.node_name == "node2"
    assert [each.type for each in here.status.conditions] == ["HotMemoryChange"]


# Volumes that go to other claims


def claimed(size: int = 0, **status: Any) -> VirtualMachineInstance:
    """Its disk is on the claim a of one node, and goes to b."""

    def info(claim: str) -> dict[str, Any]:
        return {"claimName": claim, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}

    spec = {
        "domain": {"devices": {"disks": [{"name": "data", "disk": {}}]}},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "b"}}],
    }
    known = {"name": "data", "size": size, "persistentVolumeClaimInfo": info("a")}
    moved = {"volumeName": "data", "sourcePVCInfo": info("a"), "destinationPVCInfo": info("b")}
    told = {
        "nodeName": "node1",
        "migrationState": MOVE,
        "volumeStatus": [known],
        "migratedVolumes": [moved],
        "conditions": [{"type": "VolumesChange", "status": "True"}],
        **status,
    }
    return handed_over("Running", spec=spec, status=told)


def test_a_disk_that_is_copied_ties_no_machine_to_its_node() -> None:
    assert migratable.obstacle(claimed()) is None
    assert migratable.obstacle(claimed(migratedVolumes=[])) is not None
    assert migratable.storage_obstacle(claimed(migratedVolumes=[])) is None
    assert migratable.method(claimed()) == "BlockMigration"


def test_a_disk_that_goes_to_another_claim_is_measured_for_each_job() -> None:
    """What was found for the last one may be less than it is by now."""
    assert source(claimed(), view()).action is Action.DISK_FACTS
    assert target(claimed(), view(EMPTY)).action is Action.NOTHING
    assert target(claimed(4096), view(EMPTY)).action is Action.PREPARE_TARGET
    old = view(disk_facts={"data": (0, 4096)}, looking=Work(Task.DONE, asked="older"))
    assert reported(claimed(), old, Step(), NOW).status.volume_status[0].size == 0
    new = view(disk_facts={"data": (0, 4096)}, looking=Work(Task.DONE, asked="job"))
    assert reported(claimed(), new, Step(), NOW).status.volume_status[0].size == 4096


def test_with_the_guest_the_other_claim_is_what_the_machine_has() -> None:
    here = moving.arrival_told(claimed(4096), view(), "node2", NOW)
    [told] = here.status.volume_status
    assert told.persistent_volume_claim_info is not None
    assert (here.status.node_name, told.persistent_volume_claim_info.claim_name, told.size) == ("node2", "b", 0)
    assert here.status.migrated_volumes == []
    assert not [each for each in here.status.conditions if each.type == "VolumesChange"]
