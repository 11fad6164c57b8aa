"""What a changed spec does to a running VMI, and what a VMI is made of."""

from __future__ import annotations

from typing import Any

import pytest
from framework.supported import COMPLETE
from framework.vms import VM_UID, owned_vmi, plain_vm, vm

from virt_controller.vm import specpatch, volumerequests
from virt_controller.vm.liveupdate import Change, Update, is_applicable, update
from virt_controller.vm.printable import View
from virt_controller.vm.setup import make_vmi, spec_of, start_revision, template_spec
from virt_controller.vm.status import Outcome, Trouble, updated
from virt_controller.vm.volumes import Needs, needs, state
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.devices import Disk
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.support.table import TODAY, Support
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.apis.vmistatus import HotplugVolumeStatus, VolumeStatus
from virt_core.apis.volumes import Volume
from virt_core.runtime.clock import FakeClock

NOW = FakeClock().now()
MIGRATABLE = {"conditions": [{"type": "LiveMigratable", "status": "True"}]}


def spec(**domain: Any) -> VirtualMachineInstanceSpec:
    plain = plain_vm()["spec"]["template"]["spec"]
    plain["domain"] |= domain
    return from_plain(plain, VirtualMachineInstanceSpec)


def running(cpu: dict[str, Any] | None = None, memory: dict[str, Any] | None = None, **status: Any) -> Any:
    vmi = owned_vmi(status=status)
    plain = {"cpu": cpu or {"cores": 1, "sockets": 1, "maxSockets": 4}, "memory": memory or {"guest": "128Mi"}}
    vmi.spec = spec(**plain)
    return vmi


def change(
    before: VirtualMachineInstanceSpec,
    after: VirtualMachineInstanceSpec,
    vmi: Any,
    live: bool = True,
    support: Support = COMPLETE,
) -> Update:
    """As if all that can ever be changed in a running machine were built, unless a test says otherwise."""
    return update(Change(before, after, vmi, 2, live, support=support))


def paths(result: Update) -> list[str]:
    return [operation["path"] for operation in result.operations]


BUMP = "/metadata/annotations/kubevirt.io~1vm-generation"


def test_nothing_of_the_template_changed() -> None:
    result = change(spec(), spec(), running())
    assert (paths(result), result.message) == ([BUMP], "")


def test_more_sockets_reach_the_vmi() -> None:
    result = change(spec(cpu={"sockets": 1}), spec(cpu={"sockets": 2}), running())
    assert paths(result) == ["/spec/domain/cpu/sockets", BUMP]
    assert result.operations[0]["value"] == 2


def test_sockets_that_were_not_mentioned_before_are_no_other_change() -> None:
    result = change(spec(), spec(cpu={"sockets": 3}), running())
    assert (paths(result), result.message) == (["/spec/domain/cpu/sockets", BUMP], "")


@pytest.mark.parametrize(
    ("sockets", "words"), [(5, "more than the running machine can have"), (1, "cannot be reduced")]
)
def test_too_many_sockets_and_fewer_need_a_restart(sockets: int, words: str) -> None:
    vmi = running({"cores": 1, "sockets": 2, "maxSockets": 4})
    result = change(spec(cpu={"sockets": 2}), spec(cpu={"sockets": sockets}), vmi)
    assert words in result.message
    assert BUMP not in paths(result)


def test_a_second_change_waits_for_the_first() -> None:
    vmi = running(conditions=[{"type": "HotVCPUChange", "status": "True"}])
    result = change(spec(cpu={"sockets": 1}), spec(cpu={"sockets": 3}), vmi)
    assert (paths(result), result.message, result.waits) == ([], "", True)


@pytest.mark.parametrize(
    ("guest", "status", "expected"),
    [
        ("256Mi", {}, ""),
        ("64Mi", {}, "cannot be less than the 128Mi that it booted with"),
        ("1Gi", {}, "1Gi of memory are more than the running machine can have (512Mi)"),
        ("257Mi", {}, "steps of 2Mi"),
    ],
)
def test_memory(guest: str, status: dict[str, Any], expected: str) -> None:
    vmi = running(memory={"guest": "128Mi", "maxGuest": "512Mi"}, **status)
    result = change(spec(), spec(memory={"guest": guest}), vmi)
    assert (expected in result.message) if expected else (not result.message)
    assert ("/spec/domain/memory/guest" in paths(result)) is (not expected)


@pytest.mark.parametrize(("reason", "waits"), [("", True), ("PodResizeDeferred", False), ("WaitingForGuest", False)])
def test_a_change_that_is_held_up_can_be_taken_back(reason: str, waits: bool) -> None:
    told = [{"type": "HotVCPUChange", "status": "True", "reason": reason}]
    vmi = running({"cores": 1, "sockets": 3, "maxSockets": 4}, conditions=told, currentCPUTopology={"sockets": 1})
    result = change(spec(cpu={"sockets": 1}), spec(cpu={"sockets": 1}), vmi)
    assert result.waits is waits
    assert ("/spec/domain/cpu/sockets" in paths(result)) is not waits


def test_what_its_owner_gave_the_pod_grows_along() -> None:
    resources = {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    vmi = running({"cores": 2, "sockets": 1, "maxSockets": 4}, {"guest": "256Mi", "maxGuest": "1Gi"})
    vmi.spec.domain.resources = from_plain(resources, type(vmi.spec.domain.resources))
    before = spec(cpu={"sockets": 1, "cores": 2}, memory={"guest": "256Mi"}, resources=resources)
    after = spec(cpu={"sockets": 2, "cores": 2}, memory={"guest": "512Mi"}, resources=resources)
    result = change(before, after, vmi)
    values = {op["path"].removeprefix("/spec/domain/"): op["value"] for op in result.operations[:-1]}
    assert (result.message, values) == (
        "",
        {
            "cpu/sockets": 2,
            "resources/requests/cpu": "2500m",
            "resources/limits/cpu": "4",
            "memory/guest": "512Mi",
            "resources/requests/memory": "512Mi",
            "resources/limits/memory": "1280Mi",
        },
    )


@pytest.mark.parametrize(
    ("cpu", "memory", "words"),
    [
        ({"dedicatedCpuPlacement": True}, {}, "CPUs of the machine's own are handed out when the machine starts"),
        ({}, {"hugepages": {"pageSize": "2Mi"}}, "huge pages are handed out"),
        ({}, {"maxGuest": None}, "was started with spec.domain.memory.maxGuest"),
    ],
)
def test_what_is_handed_out_at_the_start_needs_a_restart(
    cpu: dict[str, Any], memory: dict[str, Any], words: str
) -> None:
    vmi = running({"cores": 1, "sockets": 1, "maxSockets": 4} | cpu, {"guest": "256Mi", "maxGuest": "1Gi"} | memory)
    before = spec(cpu={"sockets": 1} | cpu, memory={"guest": "256Mi"} | memory)
    after = spec(cpu={"sockets": 2} | cpu, memory={"guest": "512Mi"} | memory)
    assert words in change(before, after, vmi).message


def test_a_size_that_is_not_named_any_more_needs_a_restart() -> None:
    vmi = running({"cores": 1, "sockets": 3, "maxSockets": 4}, podRoom={"sockets": 3, "guest": "128Mi"})
    assert "does not say any more how much CPU sockets" in change(spec(), spec(), vmi).message


def test_a_node_that_cannot_give_more_makes_a_restart_necessary() -> None:
    """The next Pod may go to another node."""
    told = {"type": "HotVCPUChange", "status": "False", "reason": "PodResizeInfeasible", "message": "no room"}
    vmi = owned_vmi(status={"conditions": [told, told | {"type": "HotMemoryChange"}]})
    status = updated(View(vm(), vmi, False, False), Outcome(), NOW)
    messages = {c.type: c.message for c in status.conditions}
    assert messages["RestartRequired"] == "a restart is needed: no room"
    assert messages["HotMemoryChange"] == "no room"


def test_what_else_changes_is_named() -> None:
    result = change(spec(), spec(chassis={"asset": "7"}, cpu={"cores": 2}), running())
    assert "spec.template.spec.domain.chassis" in result.message
    assert "spec.template.spec.domain.cpu" in result.message


def test_without_live_update_everything_needs_a_restart() -> None:
    result = change(spec(cpu={"sockets": 1}), spec(cpu={"sockets": 2}), running(), live=False)
    assert "cpu.sockets" in result.message
    assert not result.operations


def test_placement_reaches_the_vmi() -> None:
    after = spec()
    after.node_selector = {"zone": "a"}
    result = change(spec(), after, running())
    assert paths(result) == ["/spec/nodeSelector", BUMP]
    vmi = running()
    vmi.spec.node_selector = {"zone": "a"}
    assert paths(change(after, spec(), vmi)) == ["/spec/nodeSelector", BUMP]


def test_hotplug_volumes_come_and_go() -> None:
    after = from_plain(
        {
            "domain": {"devices": {"disks": [{"name": "new", "disk": {"bus": "scsi"}}]}},
            "volumes": [{"name": "new", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": True}}],
        },
        VirtualMachineInstanceSpec,
    )
    before = from_plain({"domain": {}}, VirtualMachineInstanceSpec)
    result = change(before, after, running())
    assert "volumes" not in result.message
    assert [v.name for v in result.operations[0]["value"]] == ["root", "new"]
    assert [d.name for d in result.operations[1]["value"]] == ["root", "new"]
    vmi = running()
    vmi.spec.volumes += after.volumes
    vmi.spec.domain.devices.disks += after.domain.devices.disks
    assert [v.name for v in change(after, before, vmi).operations[0]["value"]] == ["root"]


def plugged(claim: str, *, drive: bool = False, name: str = "new") -> VirtualMachineInstanceSpec:
    """With one volume that may come and go; none without a claim."""
    after = spec()
    kind: dict[str, Any] = {"cdrom": {"bus": "sata"}} if drive else {"disk": {"bus": "scsi"}}
    after.domain.devices.disks.append(from_plain({"name": name, **kind}, Disk))
    if claim:
        plain = {"name": name, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": True}}
        after.volumes.append(from_plain(plain, Volume))
    return after


def volumes_and_disks(result: Update) -> tuple[list[str], list[str]]:
    volumes, disks = (operation["value"] for operation in result.operations[:2])
    return [each.name for each in volumes], [each.name for each in disks]


def test_a_volume_that_changes_its_claim_goes_first_and_comes_again_when_nothing_is_left_of_it() -> None:
    before, after, vmi = plugged("one"), plugged("two"), running()
    vmi.spec = plugged("one")
    result = change(before, after, vmi)
    assert (volumes_and_disks(result), result.message) == ((["root"], ["root"]), "")
    assert BUMP not in paths(result), "there is more to do"
    vmi.spec = spec()
    vmi.status.volume_status = [VolumeStatus(name="new", phase="Detaching", hotplug_volume=HotplugVolumeStatus())]
    waits = change(before, after, vmi)
    assert (paths(waits), waits.waits) == ([], True)
    vmi.status.volume_status = []
    again = change(before, after, vmi)
    assert volumes_and_disks(again) == (["root", "new"], ["root", "new"])
    assert BUMP in paths(again)


def test_a_drive_stays_while_its_medium_comes_changes_and_goes() -> None:
    empty, full, other = (plugged(claim, drive=True) for claim in ("", "one", "two"))
    vmi = running()
    for is_, shall, volumes in ((empty, full, ["root", "new"]), (full, other, ["root"]), (full, empty, ["root"])):
        vmi.spec = is_
        result = change(empty, shall, vmi)
        assert (volumes_and_disks(result), result.message) == ((volumes, ["root", "new"]), "")


def test_a_drive_itself_comes_and_goes_with_a_restart() -> None:
    vmi = running()
    vmi.spec = spec()
    coming = change(spec(), plugged("one", drive=True), vmi)
    assert "domain.devices.disks" in coming.message
    assert "/spec/volumes" not in paths(coming)
    vmi.spec = plugged("one", drive=True)
    going = change(plugged("one", drive=True), spec(), vmi)
    assert "domain.devices.disks" in going.message
    assert volumes_and_disks(going) == (["root"], ["root"]), "its medium goes at once"


def test_volumes_wait_until_the_machine_runs() -> None:
    vmi = running()
    vmi.spec, vmi.status.phase = spec(), "Scheduled"
    result = change(spec(), plugged("one"), vmi)
    assert (paths(result), result.waits, result.message) == ([], True, "")


@pytest.mark.parametrize(
    ("after", "fields"),
    [
        (spec(cpu={"threads": 2}), ["domain.cpu.threads"]),
        (spec(memory={"guest": "128Mi", "maxGuest": "256Mi"}), ["domain.memory.maxGuest"]),
        (spec(chassis={"asset": "7"}), ["domain.chassis.asset"]),
    ],
)
def test_what_is_not_built_waits_for_a_restart_and_leaves_the_vmi_alone(
    after: VirtualMachineInstanceSpec, fields: list[str]
) -> None:
    """The sentence names the fields; when they are set back, it is gone."""
    vmi = running(memory={"guest": "128Mi", "maxGuest": "512Mi"}, **MIGRATABLE)
    named = ", ".join(f"spec.template.spec.{field}" for field in fields)
    result = change(spec(), after, vmi, support=TODAY)
    assert (result.operations, result.message) == ([], f"a restart is needed: {named} changed")
    back = change(spec(), spec(), vmi, support=TODAY)
    assert (paths(back), back.message) == ([BUMP], "")


def test_to_write_down_what_runs_by_default_needs_no_restart() -> None:
    vmi = running({"cores": 1, "sockets": 1, "model": "host-model"})
    same = change(spec(), spec(cpu={"sockets": 1, "model": "host-model"}), vmi, support=TODAY)
    assert (paths(same), same.message) == ([BUMP], "")
    other = change(spec(), spec(cpu={"sockets": 1, "threads": 2}), vmi, support=TODAY)
    assert "spec.template.spec.domain.cpu.threads changed" in other.message
    back = change(spec(cpu={"sockets": 2}), spec(), running({"cores": 1, "sockets": 2}), support=TODAY)
    assert "spec.template.spec.domain.cpu.sockets changed" in back.message


def test_only_a_live_vmi_of_another_generation_is_looked_at() -> None:
    assert is_applicable(owned_vmi(), 2)
    assert not is_applicable(owned_vmi(), 1)
    assert not is_applicable(owned_vmi("Failed"), 2)
    assert not is_applicable(owned_vmi(status={"virtualMachineRevisionName": ""}), 2)


def test_the_vmi_of_a_vm() -> None:
    machine = vm(
        metadata={"generation": 7}, status={"stateChangeRequests": [{"action": "Start", "data": {"paused": "true"}}]}
    )
    made = make_vmi(machine, template_spec(machine), annotations={"a": "b"}, receive=True)
    assert (made.metadata.name, made.metadata.namespace) == ("vm", "default")
    assert made.metadata.labels == {"app": "x"}
    assert made.metadata.annotations == {
        "a": "b",
        "kubevirt.io/vm-generation": "7",
        "kubevirt.io/create-migration-target": "true",
    }
    assert made.metadata.owner_references[0].uid == VM_UID
    assert made.metadata.finalizers == [names.FINALIZER_VM_CONTROLLER]
    assert made.spec.start_strategy == "Paused"
    revision = start_revision(machine)
    assert revision.metadata.name == f"revision-start-vm-{VM_UID}-7"
    assert spec_of(revision) == machine.spec


def test_an_old_vm_keeps_the_uuid_of_its_name() -> None:
    """The value that the real system gives a VM of this name."""
    machine = vm()
    assert machine.spec.template is not None
    machine.spec.template.spec.domain.firmware = None
    (operation,) = specpatch.operations(machine, "")
    assert operation["path"] == "/spec/template/spec/domain/firmware"
    made = make_vmi(machine, template_spec(machine))
    assert made.spec.domain.firmware is not None
    assert operation["value"] == {"uuid": made.spec.domain.firmware.uuid}


@pytest.mark.parametrize(
    ("changes", "wanted", "expected"),
    [
        ({}, "Halted", [("add", "/spec/runStrategy", "Halted")]),
        ({}, "Always", []),
        ({"runStrategy": None, "running": False}, "Always", [("replace", "/spec/running", True)]),
        (
            {"runStrategy": None, "running": True},
            "Manual",
            [("remove", "/spec/running", None), ("add", "/spec/runStrategy", "Manual")],
        ),
    ],
)
def test_switching_the_strategy(changes: dict[str, Any], wanted: str, expected: list[Any]) -> None:
    found = specpatch.operations(vm(spec=changes), wanted)
    assert [(o["op"], o["path"], o.get("value")) for o in found] == expected


def test_finalizer_comes_and_goes() -> None:
    (operation,) = specpatch.operations(vm(metadata={"finalizers": ["x"]}), "")
    assert operation["value"] == ["x", names.FINALIZER_VM_CONTROLLER]
    assert specpatch.without_finalizer(vm())[0]["value"] == []
    assert specpatch.operations(vm(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []}), "") == []


def conditions(status: Any) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in status.conditions}


def test_status_mirrors_the_vmi() -> None:
    theirs = [
        {"type": "Ready", "status": "True"},
        {"type": "AgentConnected", "status": "True"},
    ]
    stale = [
        {"type": "Synchronized", "status": "False"},
        {"type": "Failure", "status": "True", "reason": "FailedCreate"},
    ]
    status = updated(View(vm(status={"conditions": stale}), owned_vmi(status={"conditions": theirs})), Outcome(), NOW)
    assert conditions(status) == {"Ready": ("True", ""), "AgentConnected": ("True", "")}
    assert (status.created, status.ready, status.printable_status) == (True, True, "Running")
    assert (status.observed_generation, status.desired_generation, status.run_strategy) == (1, 1, "Always")


def test_status_without_a_vmi() -> None:
    before = [{"type": "LiveMigratable", "status": "True"}, {"type": "AgentConnected", "status": "True"}]
    outcome = Outcome(trouble=Trouble("FailedCreate", "no"), restart_required="why")
    status = updated(View(vm(status={"conditions": before, "runStrategy": "Manual"})), outcome, NOW)
    assert conditions(status) == {
        "LiveMigratable": ("True", ""),
        "Ready": ("False", "VMINotExists"),
        "Failure": ("True", "FailedCreate"),
        "RestartRequired": ("True", ""),
    }
    assert (status.created, status.ready, status.run_strategy) == (False, False, "Manual")


@pytest.mark.parametrize(
    ("requests", "vmi", "left"),
    [
        ([{"action": "Start"}], None, ["Start"]),
        ([{"action": "Start"}], owned_vmi("Pending"), []),
        ([{"action": "Start"}], owned_vmi("Failed"), ["Start"]),
        ([{"action": "Start"}], owned_vmi(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}), ["Start"]),
        ([{"action": "Stop", "uid": "other"}, {"action": "Start"}], owned_vmi(), ["Start"]),
        ([{"action": "Stop", "uid": owned_vmi().metadata.uid}], owned_vmi(), ["Stop"]),
        ([{"action": "Stop", "uid": "x"}], None, []),
    ],
)
def test_requests_leave_the_queue_when_fulfilled(
    requests: list[dict[str, Any]], vmi: VirtualMachineInstance | None, left: list[str]
) -> None:
    status = updated(View(vm(status={"stateChangeRequests": requests}), vmi), Outcome(), NOW)
    assert [r.action for r in status.state_change_requests] == left


def test_volumes() -> None:
    plain = {
        "domain": {},
        "volumes": [
            {"name": "a", "persistentVolumeClaim": {"claimName": "a"}},
            {"name": "b", "dataVolume": {"name": "b"}},
            {"name": "c", "ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}},
        ],
    }
    need = needs(from_plain(plain, VirtualMachineInstanceSpec))
    assert need == Needs(("a", "c"), ("b",))
    bound = from_plain({"status": {"phase": "Bound"}}, PersistentVolumeClaim)
    claims = {"n/a": bound, "n/c": from_plain({"status": {"phase": "Pending"}}, PersistentVolumeClaim)}
    found = state(need, "n", claims.get, {"b": "ImportInProgress"})
    assert (found.provisioning, found.failed, found.unbound, found.missing) == (True, False, True, ())
    assert state(need, "n", claims.get, {"b": "Failed"}).failed
    assert state(need, "n", claims.get, {}).missing == ("b",)


ADD = {
    "addVolumeOptions": {
        "name": "new",
        "disk": {"name": "x", "disk": {"bus": "scsi"}},
        "volumeSource": {"persistentVolumeClaim": {"claimName": "c"}},
    }
}
REMOVE = {"removeVolumeOptions": {"name": "root"}}


def test_queued_volumes_become_part_of_the_template() -> None:
    machine = vm(status={"volumeRequests": [ADD, REMOVE]})
    volumes, disks = specpatch.operations(machine, "")
    assert [v.name for v in volumes["value"]] == [d.name for d in disks["value"]] == ["new"]
    assert volumes["value"][0].persistent_volume_claim.hotpluggable
    assert len(volumerequests.left(machine)) == 2
    assert machine.spec.template is not None
    machine.spec.template.spec.volumes = volumes["value"]
    machine.spec.template.spec.domain.devices.disks = disks["value"]
    assert specpatch.operations(machine, "") == []
    assert updated(View(machine), Outcome(), NOW).volume_requests == []
