"""What `down` removes beyond what the API knows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from virt_local.node.oneshot import CGROUP_PREFIX
from virt_local.up import down
from virt_local.up.errors import UpError
from virt_local.up.instance import make_instance


def test_groups_of_the_instance_and_of_a_killed_probe_go(tmp_path: Path) -> None:
    """In every hierarchy; those of others stay."""
    gone = ("virtpod-t/node1/pod1", "memory/virtpod-t/node1", f"pids/{CGROUP_PREFIX}999999999-ab")
    stay = ("virtpod-tt/node1", f"pids/{CGROUP_PREFIX}{os.getpid()}-ab", "memory/user.slice")
    for name in (*gone, *stay):
        (tmp_path / name).mkdir(parents=True)
    down._remove_cgroups(make_instance("t", str(tmp_path / "data")), tmp_path)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {"virtpod-tt", "virtpod-tt/node1", "memory", "memory/user.slice", "pids", stay[1]}


def test_data_below_a_mount_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "data" / "mounted").mkdir(parents=True)
    with pytest.raises(UpError, match="still has mounts"):
        down._purge(tmp_path / "data", lambda: f"x {tmp_path}/data/mounted ext4 rw 0 0\n")
    assert (tmp_path / "data" / "mounted").exists()
