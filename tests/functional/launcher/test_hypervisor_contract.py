"""One contract for the fake hypervisor and for libvirt's own (its built-in test driver: no root, no QEMU)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import libvirt
import pytest
from framework.fake_hypervisor import FakeHypervisor

from tests.functional.launcher.sandbox import eventually
from virt_launcher.errors import AgentGivenUpError, LauncherError, NoMachineError, WrongStateError
from virt_launcher.hypervisor.libvirt_door import LibvirtDoor
from virt_launcher.hypervisor.libvirt_errors import translate
from virt_launcher.hypervisor.libvirt_host import register_event_loop, run_event_loop, wake_event_loop
from virt_launcher.hypervisor.ports import Change, Hypervisor, State
from virt_launcher.machine.picture import Picture

XML = "<domain type='test'><name>ns_vm1</name><memory>8192</memory><os><type>hvm</type></os></domain>"


@pytest.fixture(scope="module")
def _event_loop() -> Iterator[None]:
    register_event_loop()
    stop = threading.Event()
    thread = threading.Thread(target=run_event_loop, args=(stop,))
    thread.start()
    yield
    stop.set()
    wake_event_loop()
    thread.join(10)
    assert not thread.is_alive()


@pytest.fixture(params=["fake", "libvirt"])
def hypervisor(request: pytest.FixtureRequest, _event_loop: None) -> Iterator[Hypervisor]:
    if request.param == "fake":
        yield FakeHypervisor("ns_vm1")
        return
    door = LibvirtDoor("test:///default", "ns_vm1")
    door.connect(5.0)
    yield door
    if door.facts() is not None:
        try:
            door.destroy()
        except WrongStateError:
            pass  # It does not run.
        door.undefine()
    door.close()


def state(hypervisor: Hypervisor) -> State:
    facts = hypervisor.facts()
    return State.ABSENT if facts is None else facts.state


def test_life(hypervisor: Hypervisor) -> None:
    assert hypervisor.facts() is None
    hypervisor.define(XML)
    assert state(hypervisor) is State.SHUTOFF
    hypervisor.start()
    assert state(hypervisor) is State.RUNNING
    hypervisor.suspend()
    assert (state(hypervisor), hypervisor.facts().reason) == (State.PAUSED, "User")  # type: ignore[union-attr]
    hypervisor.resume()
    assert state(hypervisor) is State.RUNNING
    hypervisor.destroy()
    assert (state(hypervisor), hypervisor.facts().reason) == (State.SHUTOFF, "Destroyed")  # type: ignore[union-attr]
    hypervisor.undefine()
    assert hypervisor.facts() is None


def test_wrong_states(hypervisor: Hypervisor) -> None:
    with pytest.raises(NoMachineError):
        hypervisor.start()
    hypervisor.define(XML)
    with pytest.raises(LauncherError):  # The test driver calls this an internal error, QEMU's a wrong state.
        hypervisor.suspend()
    with pytest.raises(WrongStateError):
        hypervisor.destroy()
    hypervisor.start()
    with pytest.raises(LauncherError):
        hypervisor.start()


def test_changes_are_told(hypervisor: Hypervisor) -> None:
    told: list[Change] = []
    hypervisor.watch(told.append)
    hypervisor.define(XML)
    hypervisor.start()
    eventually(lambda: Change.LIFECYCLE in told, within_s=5)


def test_version_and_description(hypervisor: Hypervisor) -> None:
    assert hypervisor.version() >= 9_000_000
    hypervisor.define(XML)
    assert "ns_vm1" in hypervisor.describe()


def test_reboot_and_reset(hypervisor: Hypervisor) -> None:
    hypervisor.define(XML)
    for act in (hypervisor.reboot, hypervisor.reset):
        with pytest.raises(LauncherError):
            act()
    hypervisor.start()
    hypervisor.reset()
    assert state(hypervisor) is State.RUNNING


def test_picture_comes_in_pieces(hypervisor: Hypervisor) -> None:
    hypervisor.define(XML)
    hypervisor.start()
    picture = Picture()
    hypervisor.screenshot(picture.feed)
    assert picture.finish().startswith(b"\x89PNG")


def test_a_processor_without_sev_says_so(hypervisor: Hypervisor) -> None:
    with pytest.raises(WrongStateError, match="no SEV"):
        hypervisor.sev_info()
    hypervisor.define(XML)
    hypervisor.start()
    # libvirt's test driver stumbles over flags that its own library sets.
    with pytest.raises(LauncherError):
        hypervisor.launch_measurement()
    with pytest.raises(LauncherError):
        hypervisor.inject_secret("aGVhZGVy", "c2VjcmV0")


def test_devices_of_a_machine_that_does_not_run_cannot_change(hypervisor: Hypervisor) -> None:
    disk = "<disk type='file' device='disk'><source file='/x'/><target dev='vdb'/><alias name='ua-x'/></disk>"
    with pytest.raises(NoMachineError):
        hypervisor.attach_device(disk)
    hypervisor.define(XML)
    for act in (lambda: hypervisor.attach_device(disk), lambda: hypervisor.update_device(disk)):
        with pytest.raises(LauncherError):
            act()


def test_only_an_agent_that_libvirt_gave_up_is_given_up() -> None:
    def told(code: int, message: str) -> LauncherError:
        error = libvirt.libvirtError("no")
        error.err = (code, 0, message, 0, None, None, None, 0, 0)
        return translate(error, None, "vm1")

    unresponsive = libvirt.VIR_ERR_AGENT_UNRESPONSIVE
    assert isinstance(told(unresponsive, "QEMU guest agent is not available due to an error"), AgentGivenUpError)
    assert type(told(unresponsive, "Guest agent not available for now")) is WrongStateError
