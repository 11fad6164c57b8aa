"""`virtctl explain network`, and what `explain vmi` says of the address in a machine's status."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from click.testing import Result
from framework.fake_kube import FakeKube, failure
from framework.machines import ALL, facts, vmi

from virt_core.apis.base import to_plain
from virt_core.apis.networkview import NetworkReport, NetworkStation, NetworkWalk
from virtctl.explain.standing import standing

VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
SUB = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/guest/networkreport"
NICS = [{"name": "default", "ipAddress": "10.244.0.9", "infoSource": "domain"}]
STAMPS = [{"phase": "Running", "phaseTransitionTimestamp": "2026-01-01T12:00:02Z"}]
MUTE = NetworkWalk(
    name="default",
    binding="masquerade",
    state="Stopped",
    stops_at="guest",
    sentence="The guest has sent nothing since its start.",
    pod_addresses=["10.244.0.9"],
    guest_addresses=["10.0.2.2"],
    stations=[NetworkStation(name="pod-nic", state="passes", seen="eth0 up"), NetworkStation("guest", "stops", "arp")],
)
FINE = NetworkWalk(name="second", binding="bridge", state="Reached", sentence="Packets reach the guest.")

Run = Callable[..., Result]


def running(now: float = 120, **status: Any) -> Any:
    given = {"nodeName": "node1", "interfaces": NICS, "phaseTransitionTimestamps": STAMPS, **status}
    return vmi("Running", ALL, **given)


def serve(kube: FakeKube, *walks: NetworkWalk, status: int = 200) -> None:
    kube.put(f"{VMIS}/guest", to_plain(running()))
    body = (200, to_plain(NetworkReport(interfaces=list(walks))), {}) if status == 200 else failure(status, "", "no")
    kube.on_request = lambda _method, path, *_: body if path == SUB else None


@pytest.mark.parametrize("words", [("network", "vmi/guest"), ("network", "vmi", "guest"), ("network", "guest")])
def test_the_way_and_the_sentence(kube: FakeKube, run: Run, words: tuple[str, ...]) -> None:
    serve(kube, MUTE)
    result = run("explain", *words)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines() == [
        "Network of VirtualMachineInstance default/guest on node1",
        "",
        "default (masquerade): Stopped at guest; Pod 10.244.0.9; guest 10.0.2.2",
        "STATION  STATE   SEEN",
        "pod-nic  passes  eth0 up",
        "guest    stops   arp",
        "",
        "The guest has sent nothing since its start.",
        "Next: virtctl console guest -n default",
    ]


def test_the_nic_that_stops_packets_is_told_of(kube: FakeKube, run: Run) -> None:
    serve(kube, FINE, MUTE)
    last = run("explain", "network", "vm/guest").output.splitlines()[-2]
    assert last == "default: The guest has sent nothing since its start."
    serve(kube, FINE)
    assert run("explain", "network", "vm/guest").output.splitlines()[-2] == "Packets reach the guest."
    serve(kube)
    assert "has no network card" in run("explain", "network", "vmi/guest").output


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_for_programs(kube: FakeKube, run: Run, form: str, load: Callable[[str], Any]) -> None:
    serve(kube, MUTE)
    found = load(run("explain", "network", "vmi/guest", "-o", form).output)
    assert (found["reached"], found["node"]) == (False, "node1")
    assert found["interfaces"][0]["stopsAt"] == "guest"
    assert found["interfaces"][0]["stations"][1]["state"] == "stops"


def test_what_cannot_be_told(kube: FakeKube, run: Run) -> None:
    serve(kube, status=403)
    refused = run("explain", "network", "vmi/guest")
    assert (refused.exit_code, len(refused.output.splitlines())) == (1, 1)
    gone = run("explain", "network", "vm", "ghost")
    assert gone.exit_code == 1
    assert "does not run, so it has no network; see `virtctl explain vm ghost -n default`" in gone.output
    assert run("explain", "network", "vmi/guest", "--wait").exit_code == 1
    assert run("explain", "network", "pod/guest").exit_code == 1


def test_a_machine_may_be_called_network(kube: FakeKube, run: Run) -> None:
    assert "vmi default/network does not exist" in run("explain", "network").output


# -- explain vmi


def says(report: NetworkReport | None, now: float = 120, **status: Any) -> Any:
    return standing(facts(running(**status), now=now, network=report))


def test_whose_address_it_is() -> None:
    mute = NetworkReport(interfaces=[MUTE])
    found = says(mute)
    assert (
        "its Pod has the address 10.244.0.9, but the guest was not seen using it: "
        "The guest has sent nothing since its start." in found.sentence
    )
    assert found.next == "virtctl explain network vmi guest -n default"
    young = says(mute, now=20)
    assert "its Pod has the address 10.244.0.9, which the guest does not use yet." in young.sentence
    assert young.next == "virtctl console guest -n default"
    fine = says(NetworkReport(interfaces=[NetworkWalk(name="default", state="Reached")]))
    assert "its address is 10.244.0.9, and the guest answers there." in fine.sentence


def test_nobody_looked() -> None:
    assert "its Pod has the address 10.244.0.9 (nobody could look" in says(None).sentence
    agent = [{**NICS[0], "infoSource": "domain, guest-agent"}]
    assert "its address is 10.244.0.9, and its guest agent is connected" in says(None, interfaces=agent).sentence


def test_explain_looks_only_at_what_runs(kube: FakeKube, run: Run) -> None:
    serve(kube, MUTE)
    assert "was not seen using it" in run("explain", "vmi", "guest").output
    kube.put(f"{VMIS}/guest", to_plain(vmi("Scheduled", ALL, nodeName="node1", interfaces=NICS)))
    kube.requests.clear()
    run("explain", "vmi", "guest")
    assert SUB not in [path for _, path, *_ in kube.requests]
