"""The data directory: nobody else's, nobody else's to swap, and closed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from virt_local.up.errors import UpError
from virt_local.up.instance import Instance, make_instance
from virt_local.up.privacy import secure
from virt_local.up.state import save_settings


def instance(path: Path) -> Instance:
    return make_instance("t", str(path))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_place_is_closed(tmp_path: Path) -> None:
    secure(instance(tmp_path / "a" / "b"))
    assert mode(tmp_path / "a" / "b") == 0o700


def test_what_stood_open_is_closed(tmp_path: Path) -> None:
    pods = tmp_path / "nodes" / "node1" / "pods"
    for directory in (pods / "uid", tmp_path / "logs", tmp_path / "images"):
        directory.mkdir(parents=True)
    log = tmp_path / "logs" / "apiserver.log"
    log.touch()
    for path in (tmp_path, pods, pods.parent, pods.parent.parent, log.parent, tmp_path / "images"):
        path.chmod(0o777)
    log.chmod(0o644)
    secure(instance(tmp_path))
    closed = (tmp_path, pods, pods.parent, pods.parent.parent, log.parent, tmp_path / "images")
    assert {mode(path) for path in closed} == {0o700}
    assert mode(log) == 0o600


def test_a_link_of_the_administrator_is_followed(tmp_path: Path) -> None:
    (tmp_path / "large-disk").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "large-disk")
    secure(instance(tmp_path / "link"))
    assert mode(tmp_path / "large-disk") == 0o700


def test_a_place_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    tmp_path.chmod(0o755)
    with pytest.raises(UpError, match=r"is not empty \(thesis.tex\)"):
        secure(instance(tmp_path))
    assert mode(tmp_path) == 0o755


def test_an_instance_may_have_got_other_things(tmp_path: Path) -> None:
    save_settings(instance(tmp_path), components=False)
    (tmp_path / "notes").touch()
    secure(instance(tmp_path))
    assert mode(tmp_path) == 0o700


def test_a_directory_that_all_may_change_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UpError, match="others may rename what is in it"):
        secure(instance(tmp_path / "open" / "data"))
    (tmp_path / "open").chmod(0o1777)
    secure(instance(tmp_path / "open" / "data"))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory away")
@pytest.mark.parametrize("what", ["directory", "link", "parent"])
def test_what_belongs_to_another_is_refused(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_UID", raising=False)
    place = tmp_path / "outer" / "data"
    place.parent.mkdir()
    if what == "link":
        place.symlink_to(tmp_path)
        os.lchown(place, 4711, 4711)
    else:
        place.mkdir()
        os.chown(place if what == "directory" else place.parent, 4711, 4711)
    with pytest.raises(UpError, match="belongs to uid 4711 and not to root"):
        secure(instance(place))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a directory away")
def test_the_home_of_who_called_sudo_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "4711")
    os.chown(tmp_path, 4711, 4711)
    secure(instance(tmp_path / "data"))
    assert (tmp_path / "data").stat().st_uid == 0
