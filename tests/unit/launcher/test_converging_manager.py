"""A running machine that is synced again: what comes, goes and changes, what fails, and what is remembered of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.parts import Parts, make_parts, plain_vmi
from virt_core.apis.base import from_plain
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VolumeStatus
from virt_launcher.convert.context import Attachment
from virt_launcher.domain.domain import from_xml
from virt_launcher.errors import LauncherError, UnavailableError
from virt_launcher.hypervisor.ports import State
from virt_launcher.machine.manager import SyncOptions

OPTIONS = SyncOptions(attachments={"n": Attachment("tap0", "02:00:00:00:00:01")})


def vmi(
    *disks: str, link: str = "", memory: str = "64Mi", status: list[dict[str, Any]] | None = None
) -> VirtualMachineInstance:
    """Disks whose names begin with s are on the bus scsi."""
    listed = [{"name": name, "disk": {"bus": "scsi" if name.startswith("s") else "virtio"}} for name in disks]
    nics = [{"name": "n", "bridge": {}, "state": link}]
    domain = {"memory": {"guest": memory}, "devices": {"disks": listed, "interfaces": nics}}
    result = plain_vmi(domain=domain, volumes=[{"name": name, "emptyDisk": {"capacity": "1Mi"}} for name in disks])
    if status:
        result.status.volume_status = [from_plain(entry, VolumeStatus) for entry in status]
    return result


@pytest.fixture
def running(tmp_path: Path) -> Parts:
    parts = make_parts(tmp_path)
    parts.manager.sync(vmi("root", "s1"), OPTIONS, "first")
    parts.hypervisor.calls.clear()
    return parts


def commands(parts: Parts) -> list[str]:
    return [call.split()[0] for call in parts.hypervisor.calls if "_device" in call]


def targets(parts: Parts) -> dict[str, str]:
    return dict(parts.manager.view().disk_targets)


def test_nothing_is_changed_without_need(running: Parts) -> None:
    running.manager.sync(vmi("root", "s1"), OPTIONS, "again")
    assert commands(running) == []


def test_disks_come_and_go(running: Parts) -> None:
    running.manager.sync(vmi("s2", "root", "s1"), OPTIONS)
    assert targets(running) == {"root": "vda", "s1": "sda", "s2": "sdb"}
    running.manager.sync(vmi("root", "s2"), OPTIONS)
    assert targets(running) == {"root": "vda", "s2": "sdb"}
    assert commands(running) == ["attach_device", "detach_device"]


def test_a_volume_that_the_machine_has_is_not_made_again(running: Parts) -> None:
    """Its file may be gone from where the list now says that it should be; the machine holds it."""
    source = from_xml(running.hypervisor.describe()).devices.disks[0].source_file
    assert source is not None
    Path(source).unlink()
    running.manager.sync(vmi("root", "s1", "s2"), OPTIONS)
    assert not Path(source).exists()


def test_a_volume_on_its_way_is_waited_for(running: Parts) -> None:
    coming = [{"name": "s2", "hotplugVolume": {}, "phase": "AttachedToNode"}]
    running.manager.sync(vmi("root", "s1", "s2", status=coming), OPTIONS)
    assert commands(running) == []
    there = [{"name": "s2", "hotplugVolume": {}, "phase": "MountedToPod"}]
    running.manager.sync(vmi("root", "s1", "s2", status=there), OPTIONS)
    assert commands(running) == ["attach_device"]


def test_each_failure_names_its_device_and_the_rest_is_done(running: Parts) -> None:
    running.hypervisor.device_errors = {"ua-s2": "no room", "ua-s1": "the guest did not release it"}
    with pytest.raises(LauncherError) as failure:
        running.manager.sync(vmi("root", "s2", "s3", link="down"), OPTIONS, "second")
    assert str(failure.value) == (
        'disk "s1" was not detached: the guest did not release it within 10 s; disk "s2" was not attached: no room'
    )
    assert targets(running).keys() == {"root", "s1", "s3"}
    assert [nic.link_state for nic in running.manager.view().interfaces] == ["down"]
    assert running.manager.synced.digest == "", "neither what it was nor what was asked for"
    assert running.manager.view().state is State.RUNNING


def test_a_later_attempt_does_what_was_left(running: Parts) -> None:
    running.hypervisor.device_errors = {"ua-s2": "no room"}
    with pytest.raises(LauncherError):
        running.manager.sync(vmi("root", "s1", "s2"), OPTIONS, "second")
    running.hypervisor.device_errors = {}
    running.manager.sync(vmi("root", "s1", "s2"), OPTIONS, "second")
    assert running.manager.synced.digest == "second"
    assert "s2" in targets(running)


def test_without_libvirt_it_is_only_unavailable(running: Parts) -> None:
    running.hypervisor.broken = True
    with pytest.raises(UnavailableError):
        running.manager.sync(vmi("root"), OPTIONS)


def test_what_waits_for_a_restart_is_told_and_forgotten(running: Parts) -> None:
    running.manager.sync(vmi("root", "s1", memory="128Mi"), OPTIONS, "second")
    assert [need.field for need in running.manager.synced.needs_restart] == ["spec.domain.memory.guest"]
    assert running.manager.synced.digest == "second"
    running.manager.sync(vmi("root", "s1"), OPTIONS, "third")
    assert running.manager.synced.needs_restart == ()


def test_a_lost_network_report_takes_no_card_away(running: Parts) -> None:
    """virt-handler knows nothing of the TAP devices any more; the machine still does."""
    running.manager.sync(vmi("root", "s1", link="down"), SyncOptions())
    assert commands(running) == ["update_device"]


def test_starting_a_machine_does_not_load_what_changes_one() -> None:
    """Every launcher would pay for it."""
    code = (
        "import sys, virt_launcher.process.assembly;"
        "print([name for name in sys.modules if name.startswith('virt_launcher.converge')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
