"""The manager around a fake hypervisor: starts once, reports truly, and leaves nothing half-made."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.launcher.parts import Parts, make_parts, plain_vmi
from virt_launcher.convert.context import Attachment
from virt_launcher.errors import InvalidVMIError, LauncherError, NoMachineError, UnavailableError, WrongStateError
from virt_launcher.hypervisor.ports import AgentInterface, AgentReport, State
from virt_launcher.machine.manager import SyncOptions

OPTIONS = SyncOptions(attachments={"n": Attachment("tap0", "02:00:00:00:00:01")})
NIC = {"domain": {"memory": {"guest": "64Mi"}, "devices": {"interfaces": [{"name": "n", "bridge": {}}]}}}


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return make_parts(tmp_path)


@pytest.fixture
def running(parts: Parts) -> Parts:
    parts.manager.sync(plain_vmi(), OPTIONS)
    return parts


def test_sync_starts_once(parts: Parts) -> None:
    for _ in range(3):
        view = parts.manager.sync(plain_vmi(), OPTIONS)
    assert view.state is State.RUNNING
    assert parts.hypervisor.calls.count("start") == 1
    assert list(parts.manager.handoffs) == ["domain-defined", "guest-started"]
    assert view.memory_bytes == 64 << 20
    assert view.emulated


def test_a_target_starts_nothing_and_ends_when_told(tmp_path: Path) -> None:
    parts = make_parts(tmp_path, role="target")
    with pytest.raises(WrongStateError, match="waits for a machine that is migrated to it"):
        parts.manager.sync(plain_vmi(), OPTIONS)
    assert set(parts.hypervisor.calls) == {"facts"}, "it looked, and did nothing"
    assert not parts.monitor.stopping
    parts.manager.delete()
    assert parts.monitor.stopping


def test_a_target_keeps_the_machine_that_moved_in(tmp_path: Path) -> None:
    parts = make_parts(tmp_path, role="target")
    parts.hypervisor.define(f"<domain><name>{parts.settings.domain_name}</name></domain>")
    parts.hypervisor.start(paused=False)
    assert parts.manager.sync(plain_vmi(), OPTIONS).state is State.RUNNING
    assert parts.hypervisor.calls.count("start") == 1
    with pytest.raises(WrongStateError, match="still runs"):
        parts.manager.delete()


def test_delete_before_the_start_leaves_an_ordinary_launcher_waiting(parts: Parts) -> None:
    parts.manager.delete()
    assert not parts.monitor.stopping


def test_sync_writes_the_capability_cache_before_it_defines(parts: Parts) -> None:
    parts.manager.sync(plain_vmi(), SyncOptions(capability_cache={"abc.xml": b"<qemuCaps/>"}))
    assert (parts.settings.paths.capability_cache / "abc.xml").read_bytes() == b"<qemuCaps/>"


@pytest.mark.parametrize("name", ["../x.xml", "/etc/x.xml", "x.txt"])
def test_cache_files_stay_in_their_directory(parts: Parts, name: str) -> None:
    with pytest.raises(InvalidVMIError):
        parts.manager.sync(plain_vmi(), SyncOptions(capability_cache={name: b""}))
    assert "define" not in parts.hypervisor.calls


def test_a_failed_start_is_undone_and_can_be_tried_again(parts: Parts) -> None:
    parts.hypervisor.refuses = "Could not open 'disk'"
    with pytest.raises(LauncherError, match="QEMU did not start: Could not open"):
        parts.manager.sync(plain_vmi(), OPTIONS)
    assert parts.hypervisor.facts() is None
    assert parts.manager.view().state is State.ABSENT
    parts.hypervisor.refuses = ""
    assert parts.manager.sync(plain_vmi(), OPTIONS).state is State.RUNNING


def test_a_failed_start_quotes_qemus_last_words(parts: Parts) -> None:
    log = parts.settings.paths.qemu_log(parts.settings.domain_name)
    log.parent.mkdir(parents=True)
    log.write_text("2026-11-16T05:57:28.807612Z qemu-system-x86_64: -drive: no such thing\n")
    parts.hypervisor.refuses = "monitor closed"
    with pytest.raises(LauncherError, match="QEMU did not start: monitor closed: -drive: no such thing"):
        parts.manager.sync(plain_vmi(), OPTIONS)


def test_another_vmi_is_refused(parts: Parts) -> None:
    vmi = plain_vmi()
    vmi.metadata.uid = "other"
    with pytest.raises(InvalidVMIError, match=r"metadata\.uid"):
        parts.manager.sync(vmi, OPTIONS)


def test_no_kvm_and_no_emulation(tmp_path: Path) -> None:
    parts = make_parts(tmp_path)
    object.__setattr__(parts.settings, "allow_emulation", False)
    with pytest.raises(WrongStateError, match="KVM cannot be used"):
        parts.manager.sync(plain_vmi(), OPTIONS)


def test_an_ended_machine_is_not_started_again(running: Parts) -> None:
    running.hypervisor.becomes(State.SHUTOFF, "Shutdown")
    with pytest.raises(WrongStateError, match="only once"):
        running.manager.sync(plain_vmi(), OPTIONS)


def test_a_stopping_launcher_starts_nothing(parts: Parts) -> None:
    parts.monitor.stop_requested(15)
    with pytest.raises(WrongStateError, match="stopping"):
        parts.manager.sync(plain_vmi(), OPTIONS)


def test_link_state_follows_the_vmi(parts: Parts) -> None:
    parts.manager.sync(plain_vmi(**NIC), OPTIONS)
    vmi = plain_vmi(**NIC)
    for state in ("down", "up"):
        vmi.spec.domain.devices.interfaces[0].state = state
        view = parts.manager.sync(vmi, OPTIONS)
        assert [nic.link_state for nic in view.interfaces] == [state]


def test_pause_and_unpause_are_idempotent(running: Parts) -> None:
    running.manager.pause()
    running.manager.pause()
    assert running.manager.view().state is State.PAUSED
    running.manager.unpause()
    running.manager.unpause()
    assert running.hypervisor.calls.count("suspend") == running.hypervisor.calls.count("resume") == 1


def test_a_paused_guest_is_woken_to_hear_the_power_button(running: Parts) -> None:
    running.manager.pause()
    running.manager.shut_down()
    assert running.hypervisor.calls.index("resume") < running.hypervisor.calls.index("shutdown")


@pytest.mark.parametrize("command", ["pause", "unpause", "shut_down"])
def test_commands_without_a_machine(parts: Parts, command: str) -> None:
    with pytest.raises(NoMachineError):
        getattr(parts.manager, command)()


def test_kill_without_a_machine_is_fine(parts: Parts) -> None:
    parts.manager.kill()
    parts.manager.delete()


def test_delete_keeps_how_it_ended(running: Parts) -> None:
    with pytest.raises(WrongStateError):
        running.manager.delete()
    running.manager.kill()
    running.manager.delete()
    assert running.hypervisor.facts() is None
    view = running.manager.view()
    assert (view.state, view.reason) == (State.SHUTOFF, "Destroyed")


def test_a_crash_carries_the_true_cause(running: Parts) -> None:
    running.qemu_ends(signal_number=9)
    running.hypervisor.becomes(State.SHUTOFF, "Crashed")
    view = running.manager.view()
    assert view.message == "QEMU was killed by signal 9 (SIGKILL)"
    assert not view.ended_well


def test_a_good_end_has_no_message_even_if_libvirt_had_to_kill(running: Parts) -> None:
    running.qemu_ends(signal_number=9)
    running.hypervisor.becomes(State.SHUTOFF, "Destroyed")
    assert running.manager.view().message == ""


def test_the_end_is_known_without_libvirt(running: Parts) -> None:
    running.manager.view()
    running.hypervisor.broken = True
    with pytest.raises(UnavailableError):
        running.manager.view()
    running.qemu_ends(exit_code=1)
    view = running.manager.view()
    assert (view.state, view.reason, view.message) == (State.SHUTOFF, "Crashed", "QEMU exited with code 1")
    assert running.manager.view() == view


def test_qemu_and_libvirt_gone_after_a_good_end(running: Parts) -> None:
    running.manager.view()
    running.hypervisor.broken = True
    running.qemu_ends(exit_code=0)
    assert running.manager.view().ended_well


def test_a_definition_is_not_yet_a_machine(parts: Parts) -> None:
    parts.hypervisor.define("<domain><name>ns_vm1</name></domain>")
    assert parts.manager.view().state is State.ABSENT
    parts.hypervisor.becomes(State.PAUSED, "StartingUp")
    assert parts.manager.view().state is State.ABSENT


def test_the_agent_counts_once_it_has_answered(running: Parts) -> None:
    running.hypervisor.report = AgentReport(os={"id": "x"}, interfaces=(AgentInterface("eth0", "02:00:00:00:00:09"),))
    assert not running.manager.view().agent.connected
    running.agent.poll()
    view = running.manager.view()
    assert view.agent.connected
    assert view.agent.about.version == "7.2"
    assert [i.guest_name for i in view.interfaces] == ["eth0"]
    running.hypervisor.report = None
    running.manager.view()
    assert not running.manager.view().agent.connected


def test_stats_only_of_a_machine(parts: Parts) -> None:
    assert parts.manager.stats() == b""
    parts.manager.sync(plain_vmi(), OPTIONS)
    assert b'"cpu":{"time":1}' in parts.manager.stats()
