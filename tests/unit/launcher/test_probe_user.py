"""The probe's own device becomes usable for the launchers' user, and nothing else is touched."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from virt_launcher.probe import user as probe_user


def test_a_link_a_file_and_nothing_are_left_alone(tmp_path: Path) -> None:
    plain = tmp_path / "file"
    plain.write_text("x")
    plain.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to("/dev/null")
    before = stat.S_IMODE(os.stat("/dev/null").st_mode)
    for path in (plain, link, tmp_path / "missing"):
        probe_user.open_to_all(str(path))
    assert stat.S_IMODE(plain.stat().st_mode) == 0o600
    assert stat.S_IMODE(os.stat("/dev/null").st_mode) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make device nodes")
def test_only_the_containers_own_device_is_hidden(tmp_path: Path) -> None:
    """Another node of the same device goes; the node's own one, a file and a link stay."""
    host = tmp_path / "host"
    own, theirs = tmp_path / "kvm", Path(f"{host}{tmp_path}/kvm")
    theirs.parent.mkdir(parents=True)
    for path in (own, theirs):
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    probe_user.hide(str(theirs), "")
    assert theirs.exists()
    probe_user.hide(str(own), str(host))
    assert not own.exists()
    own.write_text("x")
    probe_user.hide(str(own), str(host))
    assert own.exists()


def test_who_is_not_root_stays_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 107)
    monkeypatch.setattr(os, "setuid", lambda _uid: pytest.fail("there was nothing to change"))
    probe_user.become_launcher()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_root_becomes_the_launchers_user_for_good() -> None:
    """In a child, since there is no way back; and no device is there that it could open."""
    pid = os.fork()
    if pid == 0:
        probe_user.become_launcher("/dev/no-such-device")
        there = (os.getresuid(), os.getresgid(), os.getgroups())
        try:
            os.setuid(0)
        except PermissionError:
            os._exit(0 if there == ((107,) * 3, (107,) * 3, []) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
