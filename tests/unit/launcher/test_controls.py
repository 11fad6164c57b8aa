"""Reboot, reset, freeze, screen and agent, around a fake hypervisor."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.launcher.parts import Parts, make_parts, plain_vmi
from virt_launcher.errors import InvalidVMIError, LauncherError, NoMachineError, WrongStateError
from virt_launcher.hypervisor.agent import (
    MAX_ANSWER,
    MAX_USERS,
    commands_from_answer,
    filesystems_from_answer,
    frozen_from_answer,
    users_from_answer,
)
from virt_launcher.hypervisor.ports import AgentFilesystem, AgentReport, AgentUser, SevInfo
from virt_launcher.machine.controls import MAX_FREEZE_S, THAW_AGAIN_S
from virt_launcher.machine.guest_clock import GuestClock
from virt_launcher.machine.manager import SyncOptions
from virt_launcher.machine.picture import MAX_PICTURE_BYTES, Picture
from virt_launcher.service.messages import filesystem_message, user_message


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    made = make_parts(tmp_path)
    made.manager.sync(plain_vmi(), SyncOptions(allow_emulation=True))
    return made


def test_reboot_and_reset(parts: Parts) -> None:
    parts.manager.controls.soft_reboot()
    parts.manager.controls.reset()
    assert parts.hypervisor.calls[-1] == "reset"
    assert "reboot" in parts.hypervisor.calls
    parts.manager.pause()
    with pytest.raises(WrongStateError, match="paused"):
        parts.manager.controls.soft_reboot()
    parts.manager.controls.reset()


def test_the_clock_is_set_when_the_agent_answers(parts: Parts) -> None:
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        parts.hypervisor.report = AgentReport() if len(naps) == 3 else None

    assert GuestClock(parts.hypervisor, lambda: True, nap).set()
    assert parts.hypervisor.guest_time > 0
    assert len(naps) == 3


def test_the_clock_waits_for_an_agent_that_is_away_for_a_moment(parts: Parts) -> None:
    """libvirt tells of the end and of the return of its channel; who asks in between finds nobody."""
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        parts.hypervisor.report = AgentReport()

    assert GuestClock(parts.hypervisor, lambda: len(naps) not in (1, 2), nap).set()
    assert len(naps) == 3
    assert parts.hypervisor.calls.count("set_guest_time") == 2


def test_the_clock_is_given_up_when_the_agent_stays_away(parts: Parts) -> None:
    naps: list[float] = []
    assert not GuestClock(parts.hypervisor, lambda: False, naps.append).set()
    GuestClock(parts.hypervisor, lambda: False, naps.append).begin()
    assert parts.hypervisor.calls.count("set_guest_time") == 0
    assert 0 < len(naps) < 1000


def test_nothing_is_done_to_a_machine_that_does_not_run(tmp_path: Path) -> None:
    controls = make_parts(tmp_path).manager.controls
    for act in (
        controls.soft_reboot, controls.reset, controls.unfreeze, controls.screenshot, controls.users,
        controls.filesystems, lambda: controls.freeze(5),
    ):  # fmt: skip
        with pytest.raises(NoMachineError):
            act()


def test_freeze_is_undone_by_itself(parts: Parts) -> None:
    parts.hypervisor.report = AgentReport()
    controls = parts.manager.controls
    controls.freeze(MAX_FREEZE_S)
    timer = controls._thaw_timer
    assert timer is not None
    assert parts.manager.view().filesystems_frozen
    heard: list[int] = []
    controls.on_late_thaw = lambda: heard.append(1)
    timer.function()
    assert "thaw" in parts.hypervisor.calls
    assert heard == [1]
    assert not parts.manager.view().filesystems_frozen
    assert controls._thaw_timer is None
    assert timer.finished.is_set()


def test_unfreeze_stops_the_timer_and_a_second_freeze_renews_it(parts: Parts) -> None:
    parts.hypervisor.report = AgentReport()
    controls = parts.manager.controls
    controls.freeze(100)
    first = controls._thaw_timer
    controls.freeze(200)
    second = controls._thaw_timer
    assert first is not None
    assert second is not None
    assert first.finished.is_set()
    assert second.interval == 200
    controls.unfreeze()
    assert second.finished.is_set()


def test_freeze_without_a_limit_lasts_until_it_is_undone(parts: Parts) -> None:
    parts.hypervisor.report = AgentReport()
    controls = parts.manager.controls
    controls.freeze(100)
    limited = controls._thaw_timer
    controls.freeze(0)
    assert limited is not None
    assert limited.finished.is_set(), "the last word counts"
    assert controls._thaw_timer is None
    assert parts.manager.view().filesystems_frozen
    controls.unfreeze()
    assert not parts.manager.view().filesystems_frozen


def test_a_thaw_that_fails_is_tried_again(parts: Parts) -> None:
    """The agent was killed while the filesystems stood still."""
    parts.hypervisor.report = AgentReport()
    controls = parts.manager.controls
    controls.freeze(10)
    first, parts.hypervisor.report = controls._thaw_timer, None
    assert first is not None
    first.function()
    second = controls._thaw_timer
    assert second is not None
    assert second.interval == THAW_AGAIN_S
    assert parts.manager.view().filesystems_frozen
    parts.hypervisor.report = AgentReport()
    second.function()
    assert not parts.hypervisor.frozen
    assert not parts.manager.view().filesystems_frozen


def test_a_guest_that_started_anew_is_not_frozen(parts: Parts) -> None:
    parts.hypervisor.report = AgentReport()
    controls = parts.manager.controls
    controls.freeze(10)
    timer = controls._thaw_timer
    assert timer is not None
    controls.agent_changed()
    assert parts.manager.view().filesystems_frozen
    parts.hypervisor.frozen = False
    controls.agent_changed()
    assert not parts.manager.view().filesystems_frozen
    assert timer.finished.is_set()


def test_the_last_thaw_of_a_machine_that_has_ended_is_none(parts: Parts) -> None:
    parts.hypervisor.report = AgentReport()
    controls = parts.manager.controls
    controls.freeze(10)
    timer = controls._thaw_timer
    assert timer is not None
    parts.manager.kill()
    timer.cancel()
    controls._thaw_timer = None
    timer.function()
    assert controls._thaw_timer is None


@pytest.mark.parametrize("answer", ['{"return": "thawed"}', '{"return": ["frozen"]}', "{}", "", "[" * 100_000])
def test_only_one_word_means_frozen(answer: str) -> None:
    assert frozen_from_answer('{"return": "frozen"}')
    assert not frozen_from_answer(answer)


def test_freeze_is_not_for_longer_than_an_hour(parts: Parts) -> None:
    with pytest.raises(InvalidVMIError):
        parts.manager.controls.freeze(MAX_FREEZE_S + 1)


def test_freeze_without_an_agent_starts_no_timer(parts: Parts) -> None:
    with pytest.raises(WrongStateError):
        parts.manager.controls.freeze(5)
    assert parts.manager.controls._thaw_timer is None


def test_screenshot_is_a_png_of_the_screen(parts: Parts) -> None:
    image = parts.manager.controls.screenshot()
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", image[16:24]) == (2, 1)
    start = image.index(b"IDAT") + 4
    (length,) = struct.unpack(">I", image[start - 8 : start - 4])
    assert zlib.decompress(image[start : start + length]) == b"\0\xff\x00\x00\x00\x00\xff"


@pytest.mark.parametrize(
    "screen",
    [b"", b"P6\n2 1\n255\n\0\0\0", b"GIF89a" + b"x" * 600, b"P6\n0 1\n255\n", b"P6\n99999 99999\n255\n" + b"\0" * 600],
)
def test_what_is_no_whole_picture_is_an_error(screen: bytes) -> None:
    with pytest.raises(LauncherError):
        drawn([screen])


def drawn(pieces: Iterable[bytes]) -> bytes:
    picture = Picture()
    for piece in pieces:
        picture.feed(piece)
    return picture.finish()


def test_a_png_is_passed_on_as_it_is() -> None:
    png = drawn([b"P6\n2 1\n255\n\xff\x00\x00\x00\x00\xff"])
    assert drawn(png[start : start + 3] for start in range(0, len(png), 3)) == png
    with pytest.raises(LauncherError, match="incomplete"):
        drawn([png[:-5]])
    with pytest.raises(LauncherError, match="bigger"):
        drawn([png[:20], b"x" * MAX_PICTURE_BYTES])


def test_picture_has_a_limit() -> None:
    noise = (random.Random(row).randbytes(12_000) for row in range(2 * MAX_PICTURE_BYTES // 12_000))
    with pytest.raises(LauncherError, match="bigger"):
        drawn(itertools.chain([b"P6\n4000 3000\n255\n"], noise))


def test_users_and_filesystems_are_cut_to_size() -> None:
    row = {"user": "u" * 1000, "login-time": 12.5, "domain": 7}
    users = users_from_answer(json.dumps({"return": [row, "x"] + [row] * 1000}))
    assert len(users) == MAX_USERS
    assert len(users[0].name) == 256
    assert (users[0].domain, users[0].login_time) == ("", 12.5)
    row = {
        "name": "vda1", "mountpoint": "/", "type": "ext4", "used-bytes": 5, "total-bytes": -1,
        "disk": [{"serial": "s", "bus-type": "virtio"}, 3] + [{}] * 100,
    }  # fmt: skip
    (found,) = filesystems_from_answer(json.dumps({"return": [row]}))
    assert (found.disk_name, found.mount_point, found.used_bytes, found.total_bytes) == ("vda1", "/", 5, 0)
    assert found.disks[0] == ("s", "virtio")
    assert len(found.disks) <= 16


@pytest.mark.parametrize("answer", ["", "[]", '{"return": 5}', '{"error": {}}', "x" * (MAX_ANSWER + 1), "[" * 100_000])
def test_an_agent_that_talks_nonsense_has_nothing(answer: str) -> None:
    assert users_from_answer(answer) == ()
    assert filesystems_from_answer(answer) == ()


def test_messages() -> None:
    assert user_message(AgentUser("root", "d", 1.5)).login_time == 1.5
    message = filesystem_message(AgentFilesystem("vda1", "/", "ext4", 1, 2, (("s", "virtio"),)))
    assert (message.disk_name, message.disks[0].bus_type) == ("vda1", "virtio")


def test_an_encrypted_launch_is_measured_and_trusted_while_it_is_paused(parts: Parts, tmp_path: Path) -> None:
    attestation, hypervisor = parts.manager.attestation, parts.hypervisor
    with pytest.raises(WrongStateError, match="no SEV"):
        attestation.info()
    hypervisor.sev = SevInfo("pdh", "chain")
    assert attestation.info().cert_chain == "chain"
    with pytest.raises(WrongStateError, match="its launch is over"):
        attestation.measurement()
    parts.manager.pause()
    with pytest.raises(WrongStateError, match="no UEFI firmware"):
        attestation.measurement()
    (tmp_path / "firmware").write_bytes(b"code")
    described = hypervisor.describe().replace("<os>", f"<os><loader>{tmp_path / 'firmware'}</loader>")
    hypervisor.describe = lambda: described  # type: ignore[method-assign]
    measured, digest = attestation.measurement()
    assert (measured.measurement, digest) == ("measured", hashlib.sha256(b"code").hexdigest())
    attestation.inject("header", "secret")
    assert "inject_secret header secret" in hypervisor.calls


def test_what_an_agent_can_do_is_read_with_care() -> None:
    def answer(*commands: object) -> str:
        return json.dumps({"return": {"version": "7.2", "supported_commands": list(commands)}})

    good, off = {"name": "guest-ping", "enabled": True}, {"name": "guest-exec", "enabled": False}
    assert commands_from_answer(answer(good, off)) == ("guest-ping",)
    assert commands_from_answer(answer({"name": "rm -rf", "enabled": True}, good)) == ("guest-ping",)
    assert len(commands_from_answer(answer(*({"name": f"guest-{n}", "enabled": True} for n in range(999))))) == 128
    for strange in ("", "[]", "{}", '{"return": 1}', answer(1), answer({"enabled": True}), '{"return": []}'):
        assert commands_from_answer(strange) == ()
