"""Where the Pod's cgroups are, on every layout that nodes have."""

from __future__ import annotations

from pathlib import Path

import pytest

from virt_netsetup import cgroups
from virt_netsetup.cgroups import parse_cgroups, parse_mounts
from virt_netsetup.model import NetsetupError

POD = "/kubepods/besteffort/pod1/abc"


def folder(root: Path, *below: str, pid: int = 0) -> Path:
    path = root.joinpath(*below)
    path.mkdir(parents=True)
    (path / "cgroup.procs").write_text(f"7\n{pid}\n" if pid else "7\n")
    return path


def line(point: Path, kind: str, options: str, root: str = "/") -> str:
    return f"40 31 0:37 {root} {point} rw,relatime shared:7 - {kind} {kind} {options}"


def found(text: str, mounts: list[str], pid: int = 12) -> list[Path]:
    return list(cgroups._files(parse_cgroups(text), parse_mounts("\n".join(mounts)), pid))


def test_version_1_has_a_folder_for_each_hierarchy(tmp_path: Path) -> None:
    cpu = folder(tmp_path / "cpu,cpuacct", POD[1:], pid=12)
    systemd = folder(tmp_path / "systemd", POD[1:], pid=12)
    mounts = [
        line(tmp_path / "cpu,cpuacct", "cgroup", "rw,cpu,cpuacct"),
        line(tmp_path / "systemd", "cgroup", "rw,xattr,name=systemd"),
    ]
    text = f"4:cpu,cpuacct:{POD}\n1:name=systemd:{POD}\n"
    assert found(text, mounts) == [cpu / "cgroup.procs", systemd / "cgroup.procs"]


def test_version_2_and_a_hybrid(tmp_path: Path) -> None:
    pids = folder(tmp_path / "pids", POD[1:], pid=12)
    unified = folder(tmp_path / "unified", POD[1:], pid=12)
    mounts = [line(tmp_path / "pids", "cgroup", "rw,pids"), line(tmp_path / "unified", "cgroup2", "rw,nsdelegate")]
    assert found(f"0::{POD}", mounts) == [unified / "cgroup.procs"]
    assert found(f"3:pids:{POD}\n0::{POD}", mounts) == [pids / "cgroup.procs", unified / "cgroup.procs"]


def test_own_part_of_a_hierarchy_is_passed_over_for_the_nodes(tmp_path: Path) -> None:
    """A container on version 1 has its own cgroup mounted as if it were all."""
    folder(tmp_path / "own")
    whole = folder(tmp_path / "node", POD[1:], pid=12)
    mounts = [
        line(tmp_path / "own", "cgroup", "rw,pids", "/kubepods/besteffort/pod2/handler"),
        line(tmp_path / "node", "cgroup", "rw,pids"),
    ]
    assert found(f"3:pids:{POD}", mounts) == [whole / "cgroup.procs"]


def test_folder_of_the_same_name_without_the_process_is_not_it(tmp_path: Path) -> None:
    folder(tmp_path / "one", POD[1:])
    right = folder(tmp_path / "two", POD[1:], pid=12)
    mounts = [line(tmp_path / "one", "cgroup2", "rw"), line(tmp_path / "two", "cgroup2", "rw")]
    assert found(f"0::{POD}", mounts) == [right / "cgroup.procs"]


def test_part_that_is_mounted_counts_from_its_root(tmp_path: Path) -> None:
    inner = folder(tmp_path / "m", "pod1", "abc", pid=12)
    mounts = [line(tmp_path / "m", "cgroup2", "rw", "/kubepods/besteffort")]
    assert found(f"0::{POD}", mounts) == [inner / "cgroup.procs"]


def test_cgroup_that_nobody_shows_us_is_named(tmp_path: Path) -> None:
    folder(tmp_path / "m")
    with pytest.raises(NetsetupError, match="pod1/abc"):
        found(f"0::{POD}", [line(tmp_path / "m", "cgroup2", "rw", "/elsewhere")])
    with pytest.raises(NetsetupError, match="no mounted cgroup hierarchy"):
        found(f"0::{POD}", [])


def test_hierarchy_that_is_mounted_nowhere_is_left_out(tmp_path: Path) -> None:
    unified = folder(tmp_path / "u", POD[1:], pid=12)
    mounts = [line(tmp_path / "u", "cgroup2", "rw")]
    assert found(f"5:name=elogind:{POD}\n0::{POD}", mounts) == [unified / "cgroup.procs"]


def test_escapes_in_mount_points() -> None:
    (mount,) = parse_mounts(r"40 31 0:37 / /a\040b rw - cgroup2 none rw", "/proc/1/root")
    assert mount.point == "/proc/1/root/a b"
