"""Disks of a running machine grow with their claims, and never shrink."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework.fake_hypervisor import FakeHypervisor

from virt_launcher.converge.growth import grow
from virt_launcher.disks.claim_disk import DiskFile, room_of_file
from virt_launcher.domain.disks import Disk
from virt_launcher.domain.domain import Domain, to_xml
from virt_launcher.errors import InvalidVMIError, LauncherError

MIB = 1 << 20


@pytest.fixture
def hypervisor() -> FakeHypervisor:
    found = FakeHypervisor("vm")
    found.define(to_xml(Domain(name="vm")))
    found.start()
    return found


def machine() -> Domain:
    domain = Domain(name="vm")
    for target, name, device, fixed in (
        ("vda", "a", "disk", False),
        ("vdb", "b", "disk", True),
        ("sda", "c", "cdrom", True),
    ):
        domain.devices.disks.append(Disk(type="file", device=device, alias=f"ua-{name}", target=target, readonly=fixed))
    return domain


def test_what_has_room_grows_and_nothing_else(hypervisor: FakeHypervisor) -> None:
    hypervisor.disk_sizes = {"vda": 10 * MIB, "vdb": 10 * MIB, "sda": 10 * MIB}
    rooms = {"a": 20 * MIB, "b": 20 * MIB, "c": 20 * MIB, "gone": 20 * MIB}
    grow(hypervisor, rooms, machine())
    assert [call for call in hypervisor.calls if "resize" in call] == [f"resize_disk vda {20 * MIB}"]
    grow(hypervisor, {"a": 5 * MIB}, machine())
    assert hypervisor.disk_sizes["vda"] == 20 * MIB


def test_a_disk_that_does_not_grow_is_named(hypervisor: FakeHypervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    hypervisor.disk_sizes = {"vda": 10 * MIB}

    def refuses(_target: str, _size: int) -> None:
        raise LauncherError("no")

    monkeypatch.setattr(hypervisor, "resize_disk", refuses)
    with pytest.raises(LauncherError, match="disk a was not made larger: no"):
        grow(hypervisor, {"a": 20 * MIB}, machine())


def test_a_disk_that_has_a_part_of_its_device_may_wait_for_a_restart(
    hypervisor: FakeHypervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came from a smaller claim, and not every libvirt can give it the rest."""
    hypervisor.disk_sizes, domain = {"vda": 10 * MIB}, machine()
    domain.devices.disks[0].type = "block"

    def refuses(_target: str, _size: int) -> None:
        raise LauncherError("no")

    monkeypatch.setattr(hypervisor, "resize_disk", refuses)
    [told] = grow(hypervisor, {"a": 20 * MIB}, domain)
    assert (told.field, told.reason) == (
        "spec.domain.devices.disks",
        'disk "a": it has a part of its device: no',
    )


def test_the_room_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "disk.img").write_bytes(b"x")
    assert room_of_file(DiskFile(tmp_path, "disk.img", "f", size=3 * MIB + 5)) == 3 * MIB
    with pytest.raises(InvalidVMIError, match="cannot be opened"):
        room_of_file(DiskFile(tmp_path, "none.img", "f", size=3 * MIB))
