"""The network of a Pod: the plan for virt-netsetup, its report, and what is kept about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from framework.vmis import POD_UID, UID, handed_over, vmi

from virt_core.apis.base import encode
from virt_core.apis.netplan import NetReport
from virt_core.runtime.clock import FakeClock
from virt_handler.decisions import netplans
from virt_handler.decisions.nameservers import Resolver, combined
from virt_handler.decisions.vocabulary import Task
from virt_handler.loop.records import GhostRecord, NetworkRecord, RecordStore
from virt_handler.loop.sessions import Session
from virt_handler.pods import network

GHOST = GhostRecord(vmi_uid=UID, namespace="default", name="vm", pod_uid=POD_UID, grace_seconds=7)


def session() -> Session:
    return Session(GHOST, FakeClock())


def test_plan_follows_the_spec() -> None:
    spec = {
        "hostname": "web",
        "domain": {
            "cpu": {"cores": 2, "sockets": 2},
            "devices": {
                "networkInterfaceMultiqueue": True,
                "interfaces": [
                    {
                        "name": "default",
                        "masquerade": {},
                        "macAddress": "02:00:00:00:00:09",
                        "ports": [{"port": 80}],
                        "dhcpOptions": {
                            "bootFileName": "b",
                            "ntpServers": ["0127.0.0.3"],
                            "privateOptions": [{"option": 240, "value": "v"}],
                        },
                    },
                    {"name": "gone", "bridge": {}, "state": "absent"},
                ],
            },
        },
        "networks": [{"name": "default", "pod": {"vmNetworkCIDR": "10.009.0.0/24"}}],
    }
    resolver = Resolver(("1.1.1.1",), ("example",))
    place: dict[str, Any] = {"pod_pid": 42, "netns_path": "/proc/self/fd/9", "state_dir": "/state"}
    plan = netplans.plan(vmi(spec=spec), POD_UID, resolver=resolver, **place)
    assert (plan.pod_uid, plan.state_dir) == (POD_UID, "/state")
    assert (plan.vmi_uid, plan.pod_pid, plan.netns_path, plan.launcher_uid) == (UID, 42, "/proc/self/fd/9", 107)
    (nic,) = plan.interfaces
    assert (nic.binding, nic.mac, nic.vm_network_cidr, nic.queues) == (
        "masquerade",
        "02:00:00:00:00:09",
        "10.9.0.0/24",
        4,
    )
    assert [(p.port, p.protocol) for p in nic.ports] == [(80, "TCP")]
    assert (nic.hostname, nic.dns_servers, nic.search_domains) == ("web", ["1.1.1.1"], ["example"])
    assert nic.dhcp_options is not None
    assert nic.dhcp_options.ntp_servers == ["127.0.0.3"]
    assert nic.dhcp_options.private_options[0].option == 240


@pytest.mark.parametrize(
    ("nic", "net"),
    [({}, {"pod": {}}), ({"bridge": {}}, {"resourceClaim": {"claimName": "n"}}), ({"masquerade": {}}, None)],
)
def test_what_can_not_be_wired_is_fatal(nic: dict[str, object], net: dict[str, object] | None) -> None:
    spec = {
        "domain": {"devices": {"interfaces": [{"name": "default"} | nic]}},
        "networks": [{"name": "default"} | net] if net else [],
    }
    with pytest.raises(netplans.NetworkError, match='"default"') as caught:
        netplans.plan(vmi(spec=spec), POD_UID)
    assert caught.value.fatal


@pytest.fixture
def store(tmp_path: Path) -> RecordStore[NetworkRecord]:
    return RecordStore(str(tmp_path / "net"), NetworkRecord)


@pytest.fixture
def wiring(tmp_path: Path, store: RecordStore[NetworkRecord]) -> Iterator[network.NetworkWiring]:
    made = network.NetworkWiring(["x"], str(tmp_path), store, FakeClock(), lambda _s: None)
    yield made
    made.close()


def test_wiring_remembers_for_the_same_pod_only(
    tmp_path: Path, store: RecordStore[NetworkRecord], wiring: network.NetworkWiring
) -> None:
    store.put(NetworkRecord(pod_uid="other", report=NetReport()))
    assert not wiring.recall(session())
    store.put(NetworkRecord(pod_uid=POD_UID, report=NetReport(), time="2026-01-01T00:00:01.000000Z"))
    one = session()
    assert wiring.recall(one)
    assert one.view().network.task is Task.DONE
    for pod_uid in (POD_UID, "other"):
        (tmp_path / pod_uid).mkdir()
    wiring.forget(POD_UID)
    assert store.get(POD_UID) is None
    assert not (tmp_path / POD_UID).exists()
    assert store.get("other") is not None
    assert (tmp_path / "other").exists()


def test_wiring_takes_over_what_an_older_version_kept_by_vmi(
    tmp_path: Path, store: RecordStore[NetworkRecord], wiring: network.NetworkWiring
) -> None:
    record = NetworkRecord(pod_uid=POD_UID, report=NetReport())
    (tmp_path / "net" / f"{UID}.json").write_bytes(encode(record))
    (tmp_path / UID).mkdir()
    (tmp_path / UID / "eth0.nic.json").write_text("{}")
    for _ in range(2):
        wiring.take_over([GHOST])
        assert store.get(POD_UID) == record
        assert (tmp_path / POD_UID / "eth0.nic.json").exists()
        assert not (tmp_path / UID).exists()
    wiring.forget(POD_UID)
    assert [path.name for path in tmp_path.rglob("*")] == ["net"]


def test_vmi_without_nics_needs_no_program(tmp_path: Path) -> None:
    store = RecordStore(str(tmp_path), NetworkRecord)
    woken: list[Session] = []
    wiring = network.NetworkWiring(["no-such-program"], str(tmp_path), store, FakeClock(), woken.append)
    one = session()
    wiring.start(one, handed_over(spec={"domain": {"devices": {}}}))
    assert one.view().network.task is Task.DONE
    assert woken == [one]
    wiring.close()


def test_ranges_of_ports_and_a_mesh_are_planned() -> None:
    nic = {"name": "default", "masquerade": {}, "portRanges": [{"protocol": "UDP", "start": 7, "end": 9}]}
    spec = {"domain": {"devices": {"interfaces": [nic]}}, "networks": [{"name": "default", "pod": {}}]}
    meshed = vmi(spec=spec, metadata={"annotations": {"sidecar.istio.io/inject": "true"}})
    [planned] = netplans.plan(meshed, POD_UID).interfaces
    assert [(port.port, port.last, port.protocol) for port in planned.ports] == [(7, 9, "UDP")]
    assert planned.mesh
    assert not netplans.plan(vmi(spec=spec), POD_UID).interfaces[0].mesh


def test_a_guest_with_a_subdomain_searches_its_own_domain_first() -> None:
    pod = Resolver(("1.1.1.1",), ("ns.svc.cluster.local", "svc.cluster.local"))
    machine = vmi(metadata={"namespace": "ns"}, spec={"subdomain": "web"})
    expected = ("web.ns.svc.cluster.local", "ns.svc.cluster.local", "svc.cluster.local")
    assert combined(machine, pod).searches == expected
    assert combined(machine, Resolver(searches=("lan",))).searches == ("lan",)
