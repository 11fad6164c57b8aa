"""Groups on hosts of both kinds; a directory plays the kernel's tree."""

from __future__ import annotations

from pathlib import Path

from tests.cluster import cgroups


def v1(root: Path, *controllers: str) -> Path:
    for name in controllers:
        (root / name).mkdir(parents=True)
        (root / name / "cgroup.procs").touch()
    if "cpuset" in controllers:
        (root / "cpuset" / "cpuset.cpus").write_text("0-1\n")
        (root / "cpuset" / "cpuset.mems").write_text("0\n")
    return root


def v2(path: Path, controllers: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.procs").touch()
    (path / "cgroup.controllers").write_text(controllers)
    (path / "cgroup.subtree_control").write_text("")
    return path


def test_a_v1_host_has_one_hierarchy_for_each_controller(tmp_path: Path) -> None:
    root = v1(tmp_path, "cpu", "cpuset")
    (root / "cpu,cpuacct").symlink_to("cpu")
    assert cgroups.hierarchies(root) == [root / "cpu", root / "cpuset"]
    cgroups.make("top/node1", root)
    assert cgroups.existing("top/node1", root) == [root / "cpu/top/node1", root / "cpuset/top/node1"]


def test_a_new_v1_cpuset_gets_what_its_parent_has(tmp_path: Path) -> None:
    root = v1(tmp_path, "cpuset")
    for part in ("top", "top/node1"):  # The kernel makes these files with the group.
        (root / "cpuset" / part).mkdir()
        (root / "cpuset" / part / "cpuset.cpus").write_text("\n")
        (root / "cpuset" / part / "cpuset.mems").write_text("\n")
    cgroups.make("top/node1", root)
    assert (root / "cpuset/top/node1/cpuset.cpus").read_text() == "0-1\n"
    assert (root / "cpuset/top/node1/cpuset.mems").read_text() == "0\n"


def test_a_v2_host_hands_its_controllers_down(tmp_path: Path) -> None:
    root = v2(tmp_path, "memory")
    v2(root / "top", "memory")
    v2(root / "top" / "node1", "memory")
    cgroups.make("top/node1", root)
    for path in (root, root / "top", root / "top/node1"):
        assert (path / "cgroup.subtree_control").read_text() == "+memory"


def test_a_hybrid_hosts_empty_v2_hierarchy_hands_down_nothing(tmp_path: Path) -> None:
    root = v1(tmp_path, "cpu")
    unified = v2(root / "unified", "")
    cgroups.make("top", root)
    assert (unified / "cgroup.subtree_control").read_text() == ""
    assert (unified / "top").is_dir()


def test_processes_below_are_found_in_any_hierarchy(tmp_path: Path) -> None:
    root = v1(tmp_path, "cpu", "memory")
    cgroups.make("top/pods", root)
    (root / "cpu/top/pods/cgroup.procs").write_text("7\n8\n")
    (root / "memory/top/cgroup.procs").write_text("9\n")
    assert cgroups.processes("top", root) == {7, 8, 9}


def test_removal_is_whole_and_may_be_repeated(tmp_path: Path) -> None:
    root = v1(tmp_path, "cpu", "memory")
    cgroups.make("top/node1", root)
    assert cgroups.remove("top", root) is True
    assert cgroups.existing("top", root) == []
    assert cgroups.remove("top", root) is False
