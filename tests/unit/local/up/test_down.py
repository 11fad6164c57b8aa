"""What `down` removes beyond what the API knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from virt_local.node.runtime import cgroups
from virt_local.node.runtime.cgroups import Hierarchy
from virt_local.up import down, probe
from virt_local.up.errors import UpError
from virt_local.up.instance import make_instance


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two hierarchies in a directory: groups without processes."""
    found = tuple(Hierarchy(tmp_path / name, False, frozenset()) for name in ("memory", "pids"))
    monkeypatch.setattr(cgroups, "hierarchies", lambda: found)
    return tmp_path


def test_groups_of_the_instance_and_of_its_killed_probe_go(groups: Path) -> None:
    """In every hierarchy; those of others stay."""
    instance = make_instance("t", str(groups / "data"))
    gone = ("memory/virtpod-t/node1/pod1", "pids/virtpod-t/virtpod-oneshot-ab")
    stay = ("memory/virtpod-tt/node1", "pids/virtpod-tt/virtpod-oneshot-ab", "pids/virtpod-oneshot-999999999-ab")
    for name in (*gone, *stay):
        (groups / name).mkdir(parents=True)
    probe.clear_killed(instance)
    assert not (groups / gone[1]).exists()
    assert (groups / gone[0]).exists()
    down._remove_cgroups(instance)
    assert not list(groups.glob("*/virtpod-t"))
    assert all((groups / name).is_dir() for name in stay)


def test_directories_of_a_killed_probe_go(groups: Path) -> None:
    instance = make_instance("t", str(groups / "data"))
    for name in ("oneshot-ab/rootfs", "oneshot-ab/runc", "probe-cd/result", "pids"):
        (instance.run_dir / name).mkdir(parents=True)
    probe.clear_killed(instance)
    assert [path.name for path in instance.run_dir.iterdir()] == ["pids"]


def test_data_below_a_mount_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "data" / "mounted").mkdir(parents=True)
    with pytest.raises(UpError, match="still has mounts"):
        down._purge(tmp_path / "data", lambda: f"x {tmp_path}/data/mounted ext4 rw 0 0\n")
    assert (tmp_path / "data" / "mounted").exists()
