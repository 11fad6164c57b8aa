"""The bare machine gets the way to packages from here, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "hack/fresh"))

import debroot  # noqa: E402
import groups  # noqa: E402

HYBRID = """sysfs /sys sysfs rw,relatime 0 0
tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,xattr,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nsdelegate 0 0
cgroup /elsewhere/memory cgroup rw,memory 0 0
"""


def test_every_hierarchy_is_mounted_again_with_what_defines_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "controllers", lambda options: [w for w in options.split(",") if w.startswith("cpu")])
    assert [each.line() for each in groups.hierarchies(HYBRID)] == [
        "cgroup cgroup cpu,cpuacct sys/fs/cgroup/cpu,cpuacct",
        "cgroup cgroup none,name=systemd sys/fs/cgroup/systemd",
        "cgroup cgroup2 rw sys/fs/cgroup/unified",
    ]


def test_a_pure_v2_machine_has_one() -> None:
    (only,) = groups.hierarchies("cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n")
    assert only.line() == "cgroup cgroup2 rw sys/fs/cgroup"


def test_only_the_way_out_is_taken_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither where programs are here, nor how Python is to behave; a proxy, in whichever spelling."""
    monkeypatch.setattr(debroot, "find_go", lambda: None)
    here = {
        "PATH": "/opt/mine/bin",
        "PYTHONPATH": "/x",
        "HTTPS_PROXY": "http://p:1",
        "no_proxy": "a",
        "KUBECONFIG": "/k",
    }
    found = debroot.environment(here)
    assert (found["HTTPS_PROXY"], found["no_proxy"]) == ("http://p:1", "a")
    assert "mine" not in found["PATH"]
    assert not {"PYTHONPATH", "KUBECONFIG"} & set(found)
