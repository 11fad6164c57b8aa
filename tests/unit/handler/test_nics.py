"""NICs that come and go: what is wired when, what the launcher hears of, and what the VMI's status tells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.netplan import NetReport, NetReportInterface
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VirtualMachineInstanceNetworkInterface as StatusInterface
from virt_handler.decisions import interfaces, migratable, nics
from virt_handler.decisions.netplans import plan
from virt_handler.decisions.synchronized import converge
from virt_handler.decisions.vocabulary import Action, Launcher, Step, Task, View, Work
from virt_handler.decisions.wanted import digest
from virt_handler.pods.memlock import needs_locked_memory
from virt_protos.launcher.v1 import launcher_pb2 as pb

NOW = datetime(2026, 1, 1, tzinfo=UTC)
#: The Pod's interface for a network called blue.
BLUE = "pod16477688c0e"


def vmi(state: str = "", *, told: str = "") -> VirtualMachineInstance:
    """With a NIC on the Pod network and one called blue; `told` is what its status knows blue from."""
    plain = {
        "metadata": {"name": "one", "uid": "u"},
        "spec": {
            "domain": {"devices": {"interfaces": [{"name": "blue", "bridge": {}, "state": state}, MASQUERADED]}},
            "networks": [{"name": "blue", "multus": {"networkName": "n"}}, {"name": "default", "pod": {}}],
        },
        "status": {
            "phase": "Running",
            "interfaces": [{"name": "blue", "infoSource": told, "podInterfaceName": BLUE}] if told else [],
        },
    }
    return from_plain(plain, VirtualMachineInstance)


MASQUERADED = {"name": "default", "masquerade": {}}


def domain(*names: str) -> pb.Domain:
    found = [pb.GuestInterface(name=name, mac="02:00:00:00:00:01") for name in names]
    return pb.Domain(state=pb.DOMAIN_STATE_RUNNING, interfaces=found)


def wired(*names: str) -> NetReport:
    return NetReport(interfaces=[NetReportInterface(name=name, tap=f"tap-{name}") for name in names])


def view(report: NetReport, machine: pb.Domain, synced: str = "", **more: Any) -> View:
    known = {"since": NOW, "launcher": Launcher.READY, "sync": Work(Task.DONE), "network": Work(Task.DONE)}
    return View(**(known | {"domain": machine, "report": report, "synced": pb.Synced(digest=synced)} | more))


def due(machine: VirtualMachineInstance, has: pb.Domain | None) -> list[str]:
    return [nic.name for nic in nics.due(machine, has)]


def test_at_the_start_all_are_wired() -> None:
    assert due(vmi(), None) == due(vmi(), pb.Domain()) == ["blue", "default"]


def test_one_that_comes_is_wired_when_the_pod_has_it() -> None:
    assert due(vmi(), domain("default")) == ["default"]
    assert due(vmi(told="multus-status"), domain("default")) == ["blue", "default"]


def test_one_that_goes_is_wired_until_the_machine_has_let_go() -> None:
    going = vmi("absent", told="domain, multus-status")
    assert due(going, domain("default", "blue")) == ["blue", "default"]
    assert due(going, domain("default")) == ["default"]


def test_the_way_in() -> None:
    """Nothing before the Pod has it; then the wires; then the machine."""
    waits, there = vmi(), vmi(told="multus-status")
    alone = view(wired("default"), domain("default"), digest(waits, wired("default")))
    assert converge(waits, alone, NOW) is None
    assert converge(there, alone, NOW) == Step(Action.WIRE_NETWORK)
    both = view(wired("default", "blue"), domain("default"), digest(waits, wired("default")))
    assert converge(there, both, NOW) == Step(Action.SYNC)
    done = view(wired("default", "blue"), domain("default", "blue"), digest(there, wired("default", "blue")))
    assert converge(there, done, NOW) is None


def test_the_way_out() -> None:
    """The machine lets go, then the wires go."""
    both, going = wired("default", "blue"), vmi("absent", told="domain, multus-status")
    held = view(both, domain("default", "blue"), digest(vmi(), both))
    assert converge(going, held, NOW) == Step(Action.SYNC)
    let_go = view(both, domain("default"), digest(going, both))
    assert converge(going, let_go, NOW) == Step(Action.WIRE_NETWORK)
    gone = view(wired("default"), domain("default"), digest(going, both))
    assert converge(going, gone, NOW) is None


def test_nobody_pulls_at_wires_while_the_machine_is_changed() -> None:
    there, running = vmi(told="multus-status"), Work(Task.RUNNING)
    assert converge(there, view(wired("default"), domain("default"), "x", sync=running), NOW) is None
    busy = view(wired("default"), domain("default"), digest(there, wired("default")), network=running)
    assert converge(there, busy, NOW) is None


def test_a_wiring_that_failed_is_tried_again_and_holds_up_nothing_else() -> None:
    there = vmi(told="multus-status")
    failed = Work(Task.FAILED, "no", retry_at=NOW + timedelta(seconds=4))
    same = view(wired("default"), domain("default"), digest(there, wired("default")), network=failed)
    assert converge(there, same, NOW) == Step(recheck_s=4.0)
    assert converge(there, same, NOW + timedelta(seconds=4)) == Step(Action.WIRE_NETWORK)
    other = view(wired("default"), domain("default"), "another", network=failed)
    assert converge(there, other, NOW) == Step(Action.SYNC)


def test_a_lost_report_changes_no_wires() -> None:
    assert not nics.differs(vmi(), domain("default"), None)


def test_the_plan_names_the_pods_interfaces() -> None:
    made = plan(vmi(), "p").interfaces
    assert [(nic.name, nic.binding, nic.pod_interface) for nic in made] == [
        ("blue", "bridge", BLUE),
        ("default", "masquerade", "eth0"),
    ]


@pytest.mark.parametrize(
    ("state", "told", "machine", "report", "sources"),
    [
        ("", "multus-status", domain("default"), wired("default"), "multus-status"),
        ("", "multus-status", domain("default", "blue"), wired("default", "blue"), "domain, multus-status"),
        ("absent", "domain, multus-status", domain("default"), wired("default", "blue"), "domain, multus-status"),
        ("absent", "domain, multus-status", domain("default"), wired("default"), "multus-status"),
        ("absent", "domain", domain("default"), wired("default"), None),
        ("", "", domain("default"), wired("default"), None),
    ],
)
def test_where_a_nic_is_known_from(
    state: str, told: str, machine: pb.Domain, report: NetReport, sources: str | None
) -> None:
    found = interfaces.merged(vmi(state, told=told), machine, report)
    assert found[0].name == "default", "the Pod network first"
    assert [to_plain(each)["infoSource"] for each in found[1:]] == ([sources] if sources else [])


def fast(**network: Any) -> VirtualMachineInstance:
    """With one card, which is a device of its node."""
    spec = {
        "domain": {"devices": {"interfaces": [{"name": "fast", "sriov": {}}]}},
        "networks": [{"name": "fast", **network}],
        "resourceClaims": [
            {"name": "shared", "resourceClaimName": "c"},
            {"name": "own", "resourceClaimTemplateName": "t"},
        ],
    }
    return from_plain({"metadata": {"name": "one", "uid": "u"}, "spec": spec}, VirtualMachineInstance)


def test_a_device_of_the_node_is_not_wired() -> None:
    machine = fast(multus={"networkName": "n"})
    assert due(machine, None) == due(machine, domain()) == []
    assert nics.arriving(machine) == []
    assert nics.on_their_way(machine, NetReport()) == set()
    assert plan(machine, "pod").interfaces == []
    assert needs_locked_memory(machine)


@pytest.mark.parametrize(
    ("network", "ties"),
    [
        ({"multus": {"networkName": "n"}}, False),
        ({"resourceClaim": {"claimName": "own", "requestName": "r"}}, False),
        ({"resourceClaim": {"claimName": "shared", "requestName": "r"}}, True),
    ],
)
def test_which_card_ties_a_machine_to_its_node(network: dict[str, Any], ties: bool) -> None:
    found = migratable.obstacle(fast(**network))
    assert (found is not None) == ties
    assert found is None or "fast is the device of one claim" in found[1]


def test_a_device_of_the_node_is_told_of_as_others_found_it() -> None:
    """virt-controller knows the Pod's interface and the guest its addresses; neither is written over."""
    machine = fast(multus={"networkName": "n"})
    machine.spec.domain.devices.interfaces[0].mac_address = "02-00-00-00-00-0A"
    machine.status.interfaces = [from_plain({"name": "fast", "infoSource": "multus-status", "podInterfaceName": BLUE},
                                            StatusInterface)]  # fmt: skip
    running = domain()
    [told] = interfaces.merged(machine, running, NetReport())
    assert told == interfaces.merged(machine, running, None)[0]
    assert (told.pod_interface_name, told.info_source, told.ip_address) == (BLUE, "multus-status", "")
    seen = pb.GuestInterface(mac="02:00:00:00:00:0a", from_agent=True, ip_addresses=["10.1.2.3"], guest_name="enp8s0")
    running.interfaces.append(seen)
    [told] = interfaces.merged(machine, running, NetReport())
    assert (told.name, told.ip_address, told.interface_name) == ("fast", "10.1.2.3", "enp8s0")
    assert told.info_source == "domain, guest-agent, multus-status"
