"""The view of the machine: what the guest says is bounded, checked and joined with what libvirt knows."""

from __future__ import annotations

import json

import pytest

from virt_launcher.domain.devices import Channel, Interface
from virt_launcher.domain.disks import Disk
from virt_launcher.domain.domain import Devices, Domain, from_xml
from virt_launcher.domain.machine import Amount
from virt_launcher.hypervisor.agent import (
    MAX_ADDRESSES,
    MAX_INTERFACES,
    MAX_TEXT,
    report_from_params,
    version_from_answer,
)
from virt_launcher.hypervisor.ports import AgentInfo, AgentInterface, AgentReport, Facts, State
from virt_launcher.hypervisor.states import state_and_reason
from virt_launcher.machine.state import MAX_GUEST_ONLY, AgentView, agent_channel_connected, compose, merge_interfaces
from virt_launcher.machine.stats import stats_json
from virt_launcher.service.messages import domain_message
from virt_protos.launcher.v1 import launcher_pb2 as pb

DOMAIN = Domain(
    type="qemu",
    memory=Amount(unit="KiB", value=65536),
    devices=Devices(
        interfaces=[Interface(alias="ua-default", mac="02:00:00:00:00:01", link="down")],
        disks=[
            Disk(alias="ua-root", target="vda", source_file="/disk.img"),
            Disk(alias="ua-drive", target="sda", device="cdrom"),
        ],
    ),
)


def test_compose_and_wire() -> None:
    report = AgentReport(os={"id": "debian", "pretty-name": "Debian"}, hostname="h")
    agent = AgentView(connected=True, report=report, about=AgentInfo("7", ("guest-ping",)))
    message = domain_message(compose("ns_vm", Facts(State.RUNNING, "", "u"), DOMAIN, agent))
    assert (message.state, message.uuid, message.memory_bytes) == (pb.DOMAIN_STATE_RUNNING, "u", 64 << 20)
    assert (message.os_info.id, message.agent_version, message.agent_connected) == ("debian", "7", True)
    assert dict(message.disk_targets) == {"root": "vda"}
    assert message.interfaces[0].link_state == "down"


def test_an_ended_machine_has_no_agent() -> None:
    view = compose("n", Facts(State.SHUTOFF, "Shutdown"), DOMAIN, AgentView(connected=True))
    assert not view.agent.connected
    assert view.ended_well


def test_interfaces_are_joined_by_mac() -> None:
    reported = (
        AgentInterface("lo", "00:00:00:00:00:00", ("127.0.0.1",)),
        AgentInterface("eth0", "02:00:00:00:00:01".upper(), ("fe80::1", "10.0.2.2", "rubbish")),
        AgentInterface("docker0", "02:00:00:00:00:99", ()),
    )
    first, second = merge_interfaces(DOMAIN, reported)
    assert (first.name, first.guest_name, first.addresses) == ("default", "eth0", ("10.0.2.2", "fe80::1"))
    assert (first.from_domain, first.from_agent) == (True, True)
    assert (second.name, second.guest_name, second.from_domain) == ("", "docker0", False)


def test_a_guest_with_endless_interfaces_does_not_grow_the_status() -> None:
    params: dict[str, object] = {"if.count": 10**9}
    for number in range(MAX_INTERFACES + 5):
        params[f"if.{number}.name"] = f"e{number}"
        params[f"if.{number}.hwaddr"] = f"02:00:00:00:01:{number:02x}"
        params[f"if.{number}.addr.count"] = 10**6
        for index in range(MAX_ADDRESSES + 5):
            params[f"if.{number}.addr.{index}.addr"] = f"10.0.{number}.{index}"
    report = report_from_params(params)
    assert len(report.interfaces) == MAX_INTERFACES
    assert {len(i.addresses) for i in report.interfaces} == {MAX_ADDRESSES}
    assert len(merge_interfaces(DOMAIN, report.interfaces)) == 1 + MAX_GUEST_ONLY


def test_texts_of_the_guest_are_short_and_printable() -> None:
    params = {"os.name": "x" * 10_000, "hostname": "a\x1b[31mb\n", "os.id": 7, "if.count": -1}
    report = report_from_params(params)
    assert report.os == {"name": "x" * MAX_TEXT}
    assert report.hostname == "a[31mb"
    assert report.interfaces == ()


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('{"return": {"version": "7.2"}}', "7.2"),
        ('{"return": []}', ""),
        ("[]", ""),
        ("rubbish", ""),
        ('{"return": {"version": 3}}', ""),
        ('{"return": {"version": "' + "9" * 999 + '"}}', "9" * 64),
    ],
)
def test_the_agents_version(answer: str, version: str) -> None:
    assert version_from_answer(answer) == version


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((1, 1), (State.RUNNING, "")),
        ((3, 1), (State.PAUSED, "User")),
        ((3, 5), (State.PAUSED, "IOError")),
        ((5, 1), (State.SHUTOFF, "Shutdown")),
        ((5, 3), (State.SHUTOFF, "Crashed")),
        ((6, 1), (State.CRASHED, "Panicked")),
        ((5, 99), (State.SHUTOFF, "")),
        ((42, 0), (State.ABSENT, "")),
    ],
)
def test_states_in_words(numbers: tuple[int, int], words: tuple[State, str]) -> None:
    assert state_and_reason(*numbers) == words


def test_the_agents_channel() -> None:
    def domain(state: str) -> Domain:
        channel = Channel(target_name="org.qemu.guest_agent.0", target_state=state)
        return Domain(devices=Devices(channels=[channel]))

    assert agent_channel_connected(domain("connected"))
    assert not agent_channel_connected(domain("disconnected"))


def test_stats_are_nested_by_device() -> None:
    flat = {
        "cpu.time": 5,
        "balloon.swap_in": 1,
        "vcpu.current": 1,
        "vcpu.maximum": 2,
        "vcpu.0.time": 3,
        "net.count": 1,
        "net.0.name": "tap0",
        "net.0.rx.bytes": 7,
        "block.count": 0,
        "dirtyrate.calc_status": 2,
    }
    assert json.loads(stats_json("n", "u", flat)) == {
        "name": "n",
        "uuid": "u",
        "cpu": {"time": 5},
        "memory": {"swapIn": 1},
        "dirtyRate": {"calcStatus": 2},
        "vcpu": [{"index": 0, "time": 3}],
        "net": [{"index": 0, "name": "tap0", "rxBytes": 7}],
        "block": [],
    }
    assert stats_json("n", "u", {}) == b""


def test_memory_that_a_guest_could_have_is_not_what_it_has() -> None:
    """A real machine of 1 Gi whose device could bring 3 Gi."""
    from tests.unit.launcher.test_golden import GOLDEN

    text = (GOLDEN / "live-grown.xml").read_text()
    view = compose("ns_vm1", Facts(State.RUNNING), from_xml(text), AgentView())
    assert (view.processors, view.memory_bytes) == (2, 1 << 30)
    taken = text.replace("<current unit='KiB'>0<", "<current unit='KiB'>2097152<")
    assert taken != text
    assert compose("ns_vm1", Facts(State.RUNNING), from_xml(taken), AgentView()).memory_bytes == 3 << 30
