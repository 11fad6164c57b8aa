"""What is missing is said in one sentence with the way out."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from virt_local.up import preflight
from virt_local.up.instance import make_instance
from virt_local.up.preflight import PreflightError
from virt_local.up.probe import ensure_probe, take_over


def test_root_is_needed() -> None:
    preflight.check_root(0)
    with pytest.raises(PreflightError, match="sudo"):
        preflight.check_root(1000)


def test_all_that_is_missing_is_named_with_one_command(tmp_path: Path) -> None:
    with pytest.raises(PreflightError) as caught:
        preflight.check_tools(
            find=lambda name: None if name in ("runc", "nft") else "/bin/x", cni_dirs=(str(tmp_path),)
        )
    told = str(caught.value)
    assert "runc (runs the containers)" in told
    assert told.endswith("apt-get install runc nftables containernetworking-plugins")


def test_another_name_of_a_program_will_do(tmp_path: Path) -> None:
    (tmp_path / "bridge").touch()
    preflight.check_tools(find=lambda name: None if name == "libvirtd" else "/bin/x", cni_dirs=(str(tmp_path),))


def test_components_need_more_than_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "bridge").touch()

    def without_qemu(name: str) -> str | None:
        return None if name.startswith("qemu") else "/bin/x"

    preflight.check_tools(components=False, find=without_qemu, cni_dirs=(str(tmp_path),))
    with pytest.raises(PreflightError, match="qemu-system-x86"):
        preflight.check_tools(find=without_qemu, cni_dirs=(str(tmp_path),))


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PreflightError, match=rf"Port {port} .*--port"):
            preflight.check_ports(make_instance("t", "/x", port if port < 64000 else 7443), components=False)


def test_the_probe_runs_when_the_machine_changed(tmp_path: Path) -> None:
    runs: list[Path] = []
    directory = tmp_path / "info"
    assert ensure_probe(directory, runs.append, "one")
    assert not ensure_probe(directory, runs.append, "one")
    assert ensure_probe(directory, runs.append, "two")
    assert len(runs) == 2


def test_a_failed_probe_is_tried_again(tmp_path: Path) -> None:
    def fail(_: Path) -> None:
        raise RuntimeError("no QEMU")

    with pytest.raises(RuntimeError):
        ensure_probe(tmp_path, fail, "one")
    assert ensure_probe(tmp_path, lambda _: None, "one")


def test_the_probes_result_is_copied_without_links(tmp_path: Path) -> None:
    """What launchers share must not lead out of its directory."""
    result, target = tmp_path / "result", tmp_path / "target"
    (result / "capabilities").mkdir(parents=True)
    target.mkdir()
    (result / "capabilities" / "a.xml").write_text("<a/>")
    (result / "evil").symlink_to("/etc/shadow")
    take_over(result, target)
    assert (target / "capabilities" / "a.xml").read_text() == "<a/>"
    assert not (target / "evil").exists()


@pytest.mark.parametrize(
    ("interface", "destination", "clash"),
    [
        ("eth0", "10.9.3.0/24", True),
        ("docker0", "10.0.0.0/8", True),
        ("eth0", "default", False),
        ("eth0", "192.168.1.0/24", False),
        ("t-br0", "10.9.0.0/24", False),
    ],
)
def test_a_network_that_is_in_use_is_refused(interface: str, destination: str, clash: bool) -> None:
    instance = make_instance("t", "/x", network="10.9.0.0/16")
    if clash:
        with pytest.raises(PreflightError, match=f"{destination} on {interface}.*--network-cidr"):
            preflight.check_network(instance, routes=lambda: [(interface, destination)])
    else:
        preflight.check_network(instance, routes=lambda: [(interface, destination)])


def test_a_dropping_firewall_is_mentioned_with_the_remedy() -> None:
    assert preflight.forward_warning(make_instance(), "accept") == ""
    assert "iptables -I FORWARD -i vp-br0 -j ACCEPT" in preflight.forward_warning(make_instance(), "drop")
