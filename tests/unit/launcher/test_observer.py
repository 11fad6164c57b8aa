"""What is asked of a machine while it is looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.framework.fake_hypervisor import FakeHypervisor
from virt_launcher.domain.devices import Channel
from virt_launcher.domain.domain import Devices, Domain, to_xml
from virt_launcher.hypervisor.ports import AgentReport, State
from virt_launcher.machine.guest_agent import GuestAgent
from virt_launcher.machine.observer import Observer


@pytest.mark.parametrize(("reason", "asked"), [("", True), ("Postcopy", False), ("PostcopyFailed", False)])
def test_an_agent_is_not_asked_while_part_of_the_memory_is_elsewhere(reason: str, asked: bool) -> None:
    hypervisor = FakeHypervisor("ns_vm")
    channel = Channel(target_name="org.qemu.guest_agent.0")
    hypervisor.define(to_xml(Domain(name="ns_vm", devices=Devices(channels=[channel]))))
    hypervisor.start()
    hypervisor.report = AgentReport()
    hypervisor._become(State.RUNNING, reason)
    agent = GuestAgent(hypervisor)
    monitor = SimpleNamespace(started=True, qemu_ended=None, panicked=False, stopping=False)
    Observer(cast("Any", SimpleNamespace(domain_name="ns_vm")), hypervisor, cast("Any", monitor), agent).view()
    agent.poll()
    assert agent.view.connected is asked
