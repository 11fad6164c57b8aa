"""Our profile of system calls: what it adds to the runtime's, and how it comes to the node."""

from __future__ import annotations

import json
import os
from pathlib import Path

from virt_core.apis import names
from virt_core.kube.configvalues import ClusterConfig
from virt_core.runtime.seccomp import ALLOW, FOR_MACHINES, default_profile, machine_profile
from virt_handler.node.seccomp import GATE, SeccompProfile

ON, OFF = ClusterConfig(feature_gates=frozenset({GATE})), ClusterConfig(feature_gates=frozenset())


def allowed(profile: dict[str, object]) -> set[str]:
    rules = profile["syscalls"]
    assert isinstance(rules, list)
    return {name for rule in rules if rule["action"] == ALLOW for name in rule["names"]}


def test_it_is_the_default_and_what_machines_need() -> None:
    added = allowed(machine_profile()) - allowed(default_profile())
    assert "userfaultfd" in added
    assert added <= set(FOR_MACHINES) <= allowed(machine_profile())
    assert allowed(default_profile()) <= allowed(machine_profile())
    denied = {name for rule in machine_profile()["syscalls"] if rule["action"] != ALLOW for name in rule["names"]}
    assert not denied & set(FOR_MACHINES)
    assert machine_profile()["defaultAction"] == "SCMP_ACT_ERRNO"


def test_it_is_written_once_where_the_kubelet_looks(tmp_path: Path) -> None:
    profile = SeccompProfile(str(tmp_path))
    profile.follow(OFF)
    assert not list(tmp_path.iterdir())
    profile.follow(ON)
    file = tmp_path / "seccomp" / names.SECCOMP_PROFILE
    assert json.loads(file.read_text()) == machine_profile()
    written = file.stat().st_ino
    profile.follow(ON)
    assert file.stat().st_ino == written
    file.write_text("{}")
    profile.follow(ON)
    assert json.loads(file.read_text()) == machine_profile()
    profile.follow(OFF)
    assert file.exists()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    root = tmp_path / "kubelet"
    (root / "seccomp").mkdir(parents=True)
    os.symlink(elsewhere, root / "seccomp" / "kubevirt")
    SeccompProfile(str(root)).follow(ON)
    assert not list(elsewhere.iterdir())


def test_a_node_without_such_a_directory_goes_on(tmp_path: Path) -> None:
    SeccompProfile(str(tmp_path / "none")).follow(ON)
