"""The Pod of a process, from its cgroups alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from framework.vmis import POD_UID

from virt_handler.pods import isolation

OTHER = "00000000-0000-0000-0000-000000000000"
SYSTEMD = POD_UID.replace("-", "_")


@pytest.mark.parametrize(
    "line",
    [
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD}.slice/cri-containerd-abc.scope",
        f"4:memory:/kubepods/burstable/pod{POD_UID}/abc",
        f"1:cpu:/virtpod-vp/node1/pod{POD_UID}/abc",
        f"0::/../../pod{POD_UID}",
    ],
)
def test_every_layout_of_cgroups_is_read(line: str) -> None:
    assert isolation.pod_of_cgroups(line) == POD_UID


@pytest.mark.parametrize(
    "line", ["0::/system.slice/sshd.service", "0::/", "", f"0::/podx{POD_UID}", f"0::/pod{POD_UID}x"]
)
def test_processes_of_the_node_have_none(line: str) -> None:
    assert isolation.pod_of_cgroups(line) is None


def test_the_outermost_pod_counts() -> None:
    """A Pod that can make cgroups of its own can name a child after another Pod, never a parent."""
    assert isolation.pod_of_cgroups(f"0::/kubepods/pod{POD_UID}/pod{OTHER}") == POD_UID


OUTER = "11111111-1111-1111-1111-111111111111"
NODE_IN_A_POD = f"/kubepods/burstable/pod{OUTER}/abc/kubelet/kubepods"


def test_the_pod_that_a_whole_node_runs_in_is_nobodys() -> None:
    own = f"4:memory:{NODE_IN_A_POD}/besteffort/pod{OTHER}/handler"
    assert isolation.pod_of_cgroups(f"4:memory:{NODE_IN_A_POD}/besteffort/pod{POD_UID}/c", own) == POD_UID
    assert isolation.pod_of_cgroups(f"4:memory:{NODE_IN_A_POD}/pod{POD_UID}/c/pod{OTHER}", own) == POD_UID
    assert isolation.pod_of_cgroups(f"4:memory:{NODE_IN_A_POD}/system", own) is None
    assert isolation.pod_of_cgroups(own, own) is None


def test_hierarchies_are_compared_with_the_same_of_ours() -> None:
    own = f"4:memory:/a/pod{OTHER}\n0::/"
    assert isolation.pod_of_cgroups(f"4:memory:/a/pod{OTHER}\n0::/pod{POD_UID}/c", own) == POD_UID


def fake_proc(root: Path, pid: int, pod: str) -> None:
    (root / str(pid) / "ns").mkdir(parents=True)
    (root / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{pod}/c\n")
    (root / str(pid) / "ns" / "net").write_text("")


def test_pids_of_a_pod(tmp_path: Path) -> None:
    for pid, pod in {30: POD_UID, 4: POD_UID, 5: OTHER}.items():
        fake_proc(tmp_path, pid, pod)
    (tmp_path / "self").mkdir()
    assert isolation.pod_pids(POD_UID, str(tmp_path)) == [4, 30]


def test_our_own_network_is_never_a_pods(tmp_path: Path) -> None:
    fake_proc(tmp_path, 7, POD_UID)
    (tmp_path / "self" / "ns").mkdir(parents=True)
    os.link(tmp_path / "7" / "ns" / "net", tmp_path / "self" / "ns" / "net")
    with pytest.raises(isolation.NoNamespaceError):
        isolation.open_netns(POD_UID, str(tmp_path))


def test_the_pods_network_is_opened(tmp_path: Path) -> None:
    fake_proc(tmp_path, 7, POD_UID)
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "net").write_text("")
    (tmp_path / "7" / "uid_map").write_text("         0 1879048192      65536\n")
    netns = isolation.open_netns(POD_UID, str(tmp_path))
    netns.close()
    assert (netns.pid, netns.launcher) == (7, 1879048192 + 107)


def test_a_process_that_has_ended_has_no_pod(tmp_path: Path) -> None:
    assert isolation.pod_of(12345, str(tmp_path)) is None


def test_users_of_a_pod_are_others_on_the_node(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "uid_map").write_text("         0 1879048192      65536\n")
    (tmp_path / "7" / "gid_map").write_text("0 0 100\n100 5000 50\n")
    assert isolation.node_id(7, 107, proc=str(tmp_path)) == 1879048192 + 107
    assert isolation.node_id(7, 107, "gid", str(tmp_path)) == 5007
    with pytest.raises(OSError, match="gid 150 is none in the user namespace of process 7"):
        isolation.node_id(7, 150, "gid", str(tmp_path))
    with pytest.raises(ProcessLookupError):
        isolation.node_id(8, 107, proc=str(tmp_path))


def test_without_a_namespace_of_its_own_they_are_the_same() -> None:
    assert isolation.node_id(os.getpid(), 107) == 107
