"""What firmware and TPM store, in a claim that others may write to: made once, never overwritten, never led astray."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.parts import Parts, make_parts, paths_in, plain_vmi
from virt_launcher.disks.held import Identity
from virt_launcher.disks.kept_state import flush, settle
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError
from virt_launcher.hypervisor.ports import AgentReport
from virt_launcher.machine.manager import SyncOptions
from virt_launcher.settings import Paths

UUID = "6e311d7c-7bc3-4420-8f30-ea6a144a4f7b"
EFI: dict[str, Any] = {"firmware": {"bootloader": {"efi": {"persistent": True}}}}
TPM: dict[str, Any] = {"devices": {"tpm": {"persistent": True}}}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    for part in ("meta", "swtpm", "swtpm-localca", "nvram"):
        (tmp_path / "private/vm-state" / part).mkdir(parents=True)
    (tmp_path / "template.fd").write_bytes(b"as delivered")
    return paths_in(tmp_path)


def settled(paths: Paths, **domain: Any) -> list[Identity]:
    vmi = plain_vmi(domain={"memory": {"guest": "64Mi"}, "devices": {}} | domain)
    machine = Domain(uuid=UUID)
    machine.os.nvram = str(paths.kept_state / "nvram/vm1_VARS.fd")
    machine.os.nvram_template = str(paths.private.parent / "template.fd")
    return list(settle(vmi, machine, paths))


def test_the_variables_begin_as_the_firmware_delivers_them_and_stay_as_the_guest_left_them(paths: Paths) -> None:
    file = paths.kept_state / "nvram/vm1_VARS.fd"
    (made,) = settled(paths, **EFI)
    assert file.read_bytes() == b"as delivered"
    assert stat.S_IMODE(file.stat().st_mode) & 0o007 == 0
    assert (made.device, made.inode) == (file.stat().st_dev, file.stat().st_ino)
    file.write_bytes(b"as the guest left them")
    assert settled(paths, **EFI) == [made]
    assert file.read_bytes() == b"as the guest left them"


def test_a_copy_that_was_cut_short_is_not_taken_for_the_variables(paths: Paths) -> None:
    (paths.kept_state / "nvram/vm1_VARS.fd.unfinished").write_bytes(b"as de")
    settled(paths, **EFI)
    assert [each.name for each in (paths.kept_state / "nvram").iterdir()] == ["vm1_VARS.fd"]
    assert (paths.kept_state / "nvram/vm1_VARS.fd").read_bytes() == b"as delivered"


def test_a_link_among_the_variables_is_refused(paths: Paths, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"somebody else's")
    (paths.kept_state / "nvram/vm1_VARS.fd").symlink_to(victim)
    with pytest.raises(InvalidVMIError, match=r"efi\.persistent: .*symbolic link"):
        settled(paths, **EFI)
    assert victim.read_bytes() == b"somebody else's"


def test_a_link_where_the_copy_is_made_is_not_followed(paths: Paths, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"somebody else's")
    (paths.kept_state / "nvram/vm1_VARS.fd.unfinished").symlink_to(victim)
    settled(paths, **EFI)
    assert victim.read_bytes() == b"somebody else's"


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_variables_that_are_no_file_are_refused(paths: Paths, make: Any) -> None:
    make(paths.kept_state / "nvram/vm1_VARS.fd")
    with pytest.raises(InvalidVMIError, match=r"efi\.persistent"):
        settled(paths, **EFI)


def test_the_tpm_finds_its_state_and_its_authority_in_the_claim(paths: Paths) -> None:
    for _ in range(2):
        assert settled(paths, **TPM) == []
    (paths.config_home / "libvirt/qemu/swtpm" / UUID / "tpm2").mkdir(parents=True)
    assert (paths.kept_state / "swtpm" / UUID / "tpm2").is_dir()
    assert (paths.config_home / "var/lib/swtpm-localca").resolve() == (paths.kept_state / "swtpm-localca").resolve()
    assert settled(paths, **TPM) == []


@pytest.mark.parametrize("part", [UUID, f"{UUID}/tpm2"])
def test_a_link_among_the_tpms_directories_is_refused(paths: Paths, tmp_path: Path, part: str) -> None:
    place = paths.kept_state / "swtpm" / part
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(tmp_path)
    with pytest.raises(InvalidVMIError, match=r"tpm\.persistent: .*links are not followed"):
        settled(paths, **TPM)


def test_state_is_on_the_disk_before_the_guest_is_frozen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = _with_tpm(tmp_path, monkeypatch)
    parts.hypervisor.report = AgentReport()
    order: list[str] = []
    monkeypatch.setattr(parts.manager.controls, "before_freeze", lambda: order.append("flush"))
    monkeypatch.setattr(parts.hypervisor, "freeze", lambda: order.append("freeze"))
    parts.manager.controls.freeze(0)
    assert order == ["flush", "freeze"]


def test_a_machine_that_keeps_state_flushes_the_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = _with_tpm(tmp_path, monkeypatch)
    assert parts.manager.controls.before_freeze.func is flush  # type: ignore[attr-defined]
    parts.hypervisor.report = AgentReport()
    parts.manager.controls.freeze(0)
    assert parts.manager.controls.frozen


def _with_tpm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    monkeypatch.setattr("virt_launcher.convert.devices.shutil.which", lambda *_, **__: "/usr/bin/swtpm")
    for part in ("meta", "swtpm", "swtpm-localca"):
        (tmp_path / "private/vm-state" / part).mkdir(parents=True)
    parts = make_parts(tmp_path)
    parts.manager.sync(plain_vmi(domain={"memory": {"guest": "64Mi"}} | TPM), SyncOptions())
    return parts
