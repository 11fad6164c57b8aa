"""The files that the components read, and what the machine is asked before."""

from __future__ import annotations

import socket
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster import configs, machine, preflight, tunables
from tests.cluster.commands import Program
from tests.cluster.errors import ClusterError
from tests.cluster.layout import make_layout

LAYOUT = make_layout("virtpod", 240, 2, ipv6=True)
NODE = LAYOUT.nodes[1]


@pytest.mark.parametrize("may", [True, False])
def test_containerd_knows_runc_the_plugins_and_the_limits_of_this_root(may: bool) -> None:
    config = tomllib.loads(configs.containerd(Path("/state/node2"), configs.Host(Path("/programs"), may)))
    runtime = config["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["restrict_oom_score_adj"] is not may
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/programs/runc"
    assert runtime["cni"]["bin_dirs"] == list(configs.CNI_DIRS)
    images = config["plugins"]["io.containerd.cri.v1.images"]
    assert images["pinned_images"]["sandbox"] == configs.PAUSE_IMAGE


def test_the_kubelet_trusts_only_the_clusters_certificates() -> None:
    config = configs.kubelet(LAYOUT, NODE)
    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["cgroupRoot"] == "/virtpod-cluster-virtpod/node2"


def test_pods_get_addresses_of_both_families_where_there_are_both() -> None:
    assert _subnets(configs.cni(LAYOUT, NODE)) == [NODE.pod_cidr, NODE.pod_cidr_v6]
    one = make_layout("virtpod", 240, 2, ipv6=False)
    assert _subnets(configs.cni(one, one.nodes[1])) == [NODE.pod_cidr]


def _subnets(config: dict) -> list[str]:  # type: ignore[type-arg]
    return [ranges[0]["subnet"] for ranges in config["plugins"][0]["ipam"]["ranges"]]


def test_pods_never_ask_a_name_server_on_this_machines_loopback() -> None:
    stub, real = "nameserver 127.0.0.53\nsearch lab\n", "nameserver 192.0.2.1\nnameserver 192.0.2.2\nsearch lab\n"
    assert configs.resolv_conf(real, "") == "nameserver 192.0.2.1\nnameserver 192.0.2.2\nsearch lab\n"
    assert configs.resolv_conf(stub, real) == configs.resolv_conf(real, "")
    assert configs.nameservers(configs.resolv_conf(stub, "")) == []


def test_the_name_server_forwards_only_where_somebody_answers() -> None:
    assert "forward . 192.0.2.1" in configs.corefile(LAYOUT, "192.0.2.1")
    assert "forward" not in configs.corefile(LAYOUT, "")


def test_a_machine_hides_the_mounts_of_others_before_it_makes_its_own() -> None:
    script = machine.boot_script(LAYOUT, NODE, Path("/programs/pause"))
    assert script.index("umount -l") < script.index("mount --bind") < script.index("mount --make-rshared /")
    assert script.rstrip().endswith('exec "/programs/pause"')
    for path in machine.OWN_PATHS:
        assert f'"{path}"' in script


def test_mount_points_that_we_made_go_again_and_those_of_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "new" / "ours"
    theirs.mkdir()
    monkeypatch.setattr(machine, "OWN_PATHS", {str(theirs): "a", str(ours): "b"})
    record = tmp_path / "record"
    machine.make_mount_points(record)
    machine.make_mount_points(record)
    assert ours.is_dir()
    machine.remove_mount_points(record)
    assert theirs.is_dir()
    assert not ours.parent.exists()


def test_kernel_switches_return_to_what_they_were(tmp_path: Path) -> None:
    proc, record = tmp_path / "sys", tmp_path / "record"
    (proc / "vm").mkdir(parents=True)
    switch = proc / "vm" / "overcommit_memory"
    switch.write_text("0\n")
    tunables.remember(record, proc)
    switch.write_text("1\n")
    tunables.remember(record, proc)  # A second cluster does not take the changed value for the old one.
    tunables.put_back(record, proc)
    assert switch.read_text() == "0"
    assert not record.exists()


def test_a_taken_port_is_named_with_who_needs_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ClusterError, match=rf"Port {port} on 127.0.0.1, which etcd needs, is taken"):
            preflight.check_ports([Program("etcd", (), (("127.0.0.1", port),))])
    preflight.check_ports([Program("etcd", (), (("127.0.0.1", port),))])


def test_whoever_listens_everywhere_has_the_port_of_an_address_to_come() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert not preflight.port_is_free("10.240.0.1", server.getsockname()[1])


def test_missing_tools_are_all_named_at_once(tmp_path: Path) -> None:
    has: Callable[[str], str | None] = lambda name: None if name == "nft" else f"/usr/bin/{name}"  # noqa: E731
    with pytest.raises(ClusterError, match="apt-get install containernetworking-plugins nftables"):
        preflight.check_tools(has, [str(tmp_path)])


def test_only_root_may() -> None:
    preflight.check_root(0)
    with pytest.raises(ClusterError, match="sudo"):
        preflight.check_root(1000)


@pytest.mark.parametrize(("effective", "may"), [("000001ffffffffff", True), ("000001fffeffffff", False)])
def test_the_capability_to_lower_scores_is_read_from_the_kernel(effective: str, may: bool) -> None:
    assert preflight.may_raise_priority(f"Name:\tx\nCapEff:\t{effective}\n") is may
