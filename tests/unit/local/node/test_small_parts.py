"""Files of /etc, cgroup tables, CNI settings, devices, log lines, signals."""

from __future__ import annotations

import io
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from virt_core.apis.base import from_plain
from virt_core.apis.pods import Container, Pod
from virt_local.node import devices
from virt_local.node.capacity import Machine, read_machine
from virt_local.node.cni import Cni, CniSettings, NetworkError, find_plugin, network_config
from virt_local.node.devices import devices_of, offered
from virt_local.node.hostfiles import hostname_of, hosts_file, resolv_conf
from virt_local.node.layout import remove_tree, write_atomic
from virt_local.node.messages import plain_message
from virt_local.node.oci.context import ContainerConfigError
from virt_local.node.runtime.cgroups import parse_hierarchies
from virt_local.node.runtime.containers import last_log_lines, read_message, signal_number
from virt_local.node.server.logs import LogOptions, parse_options, render_line, tail_offset
from virt_local.node.volumes.base import Mounted, VolumeError, huge_pages
from virt_local.node.volumes.mounts import block_devices


def pod(**spec: Any) -> Pod:
    return from_plain({"metadata": {"name": "p", "namespace": "n"}, "spec": spec}, Pod)


def test_hosts_file() -> None:
    of = pod(subdomain="sub", hostAliases=[{"ip": "1.2.3.4", "hostnames": ["a", "b"]}])
    lines = hosts_file(of, "p", ["10.0.0.2"]).splitlines()
    assert "10.0.0.2\tp.sub.n.svc.cluster.local\tp" in lines
    assert lines[-1] == "1.2.3.4\ta\tb"


def test_hostname_is_cut_to_what_a_kernel_takes() -> None:
    assert hostname_of(from_plain({"metadata": {"name": "x" * 62 + "-yz"}}, Pod)) == "x" * 62


def test_resolv_conf_policies(tmp_path: Path) -> None:
    host = tmp_path / "resolv.conf"
    host.write_text("# me\nnameserver 10.0.0.53\nnameserver 127.0.0.1\nsearch here\noptions ndots:2\n")
    assert resolv_conf(pod(), host) == "search here\nnameserver 10.0.0.53\noptions ndots:2\n"
    config = {"nameservers": ["9.9.9.9"], "searches": ["x"], "options": [{"name": "edns0"}]}
    assert resolv_conf(pod(dnsPolicy="None", dnsConfig=config), host) == "search x\nnameserver 9.9.9.9\noptions edns0\n"
    assert resolv_conf(pod(), tmp_path / "absent") == "\n"


def test_resolv_conf_with_the_name_server_of_the_instance(tmp_path: Path) -> None:
    host = tmp_path / "resolv.conf"
    host.write_text("nameserver 10.0.0.53\nsearch here\noptions ndots:2\n")
    own, dns = "search n.svc.cluster.local svc.cluster.local cluster.local here\nnameserver 10.1.0.2\n", ("10.1.0.2",)
    assert resolv_conf(pod(), host, dns) == own + "options ndots:5\n"
    assert (
        resolv_conf(pod(hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet"), host, dns) == own + "options ndots:5\n"
    )
    plain = "search here\nnameserver 10.0.0.53\noptions ndots:2\n"
    assert resolv_conf(pod(dnsPolicy="Default"), host, dns) == plain
    assert resolv_conf(pod(hostNetwork=True, dnsPolicy="ClusterFirst"), host, dns) == plain
    config = {"nameservers": ["9.9.9.9"], "options": [{"name": "ndots", "value": "1"}]}
    text = resolv_conf(pod(dnsConfig=config), host, dns)
    assert text.endswith("nameserver 10.1.0.2\nnameserver 9.9.9.9\noptions ndots:1\n"), "what the Pod says, wins"
    text = resolv_conf(pod(dnsConfig={"nameservers": ["9.9.9.8", "9.9.9.9"]}), host, ("10.1.0.2", "fd00::2"))
    assert "nameserver 10.1.0.2\nnameserver 9.9.9.8\nnameserver 9.9.9.9\noptions" in text


def test_cgroup_hierarchies_of_a_hybrid_machine() -> None:
    text = (
        "31 25 0:27 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"
        "40 25 0:36 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    )
    first, second = parse_hierarchies(text)
    assert (str(first.mount), first.unified, "cpuset" in first.controllers) == ("/sys/fs/cgroup/cpuset", False, True)
    assert (str(second.mount), second.unified) == ("/sys/fs/cgroup/unified", True)


def settings(tmp_path: Path) -> CniSettings:
    return CniSettings("vp-pods", "vp-cni0", ("10.1.0.0/24", "fd00::/64"), tmp_path, ("/none", str(tmp_path / "bin")))


def test_cni_configuration(tmp_path: Path) -> None:
    config = network_config(settings(tmp_path))
    assert (config["type"], config["bridge"], config["isGateway"]) == ("bridge", "vp-cni0", True)
    assert config["ipam"]["ranges"] == [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]
    assert config["ipam"]["routes"] == [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]


def test_a_missing_plugin_is_named(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="no CNI plugin 'bridge' in /none"):
        find_plugin("bridge", ("/none",))


def test_a_plugins_own_words_and_addresses(tmp_path: Path) -> None:
    plugin = tmp_path / "bin" / "bridge"
    plugin.parent.mkdir()
    plugin.write_text('#!/bin/sh\ncat >/dev/null\necho \'{"code":7,"msg":"no room","details":"at all"}\'\nexit 1\n')
    plugin.chmod(0o755)
    with pytest.raises(NetworkError, match="failed to ADD: no room at all"):
        Cni(settings(tmp_path)).add("id", tmp_path / "ns", tmp_path / "cache")
    plugin.write_text(
        '#!/bin/sh\ncat >/dev/null\necho \'{"ips":[{"address":"10.1.0.2/24"},{"address":"fd00::2/64"}]}\'\n'
    )
    assert Cni(settings(tmp_path)).add("id", tmp_path / "ns", tmp_path / "cache") == ["10.1.0.2", "fd00::2"]
    assert (tmp_path / "cache").exists()


def test_who_holds_addresses(tmp_path: Path) -> None:
    leases = tmp_path / "vp-pods"
    leases.mkdir()
    (leases / "10.1.0.2").write_text("pod-a\r\neth0")
    (leases / "fd00::2").write_text("pod-b\r\neth0")
    (leases / "last_reserved_ip.0").write_text("10.1.0.2")
    (leases / "lock").touch()
    assert Cni(settings(tmp_path)).leases() == {"pod-a", "pod-b"}


@pytest.mark.parametrize(("flags", "kvm"), [("fpu vmx", True), ("fpu svm", True), ("fpu", False)])
def test_kvm_needs_the_cpu_as_well(tmp_path: Path, flags: str, kvm: bool) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor: 0\nflags\t\t: {flags}\n")
    paths = {"kvm": "/dev/null", "tun": "/dev/null", "vhost-net": "/dev/absent"}
    found = offered(cpuinfo, paths, "x86_64")
    assert ("devices.kubevirt.io/kvm" in found) is kvm
    assert found["devices.kubevirt.io/tun"] == "1000"
    assert "devices.kubevirt.io/vhost-net" not in found


@pytest.mark.parametrize(
    ("told", "usable"), [("8.1.0", True), ("10.0.2 (Debian)", True), ("7.2.9", False), ("", False)]
)
def test_user_faults_need_a_qemu_that_asks_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, usable: bool
) -> None:
    qemu = tmp_path / "qemu-system-x86_64"
    qemu.write_text(f"#!/bin/sh\necho 'QEMU emulator version {told}'\n")
    qemu.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = offered(tmp_path / "cpuinfo", {"userfaultfd": "/dev/null"}, "x86_64")
    assert ("devices.kubevirt.io/userfaultfd" in found) is usable
    assert not offered(tmp_path / "cpuinfo", {"userfaultfd": "/dev/null"}, "riscv64")


def test_devices_of_a_container() -> None:
    def wish(name: str, amount: int = 1) -> Container:
        return from_plain({"name": "c", "resources": {"limits": {f"devices.kubevirt.io/{name}": amount}}}, Container)

    (device,) = devices_of(wish("tun"), {"tun": "/dev/null"})
    assert (device.path, device.major, device.minor) == ("/dev/null", 1, 3)
    assert devices_of(wish("tun", 0), {"tun": "/dev/null"}) == []
    with pytest.raises(ContainerConfigError, match=r"no device devices\.kubevirt\.io/gpu"):
        devices_of(wish("gpu"), {})


def test_a_socket_of_the_machine_is_offered_while_somebody_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, inside = tmp_path / "helper.sock", "/var/run/kubevirt/daemons/pr/pr-helper.sock"
    monkeypatch.setattr(devices, "SOCKETS", {"pr-helper": (str(path), inside)})
    wish = {"name": "c", "resources": {"limits": {"devices.kubevirt.io/pr-helper": 1}}}
    container = from_plain(wish, Container)
    assert "devices.kubevirt.io/pr-helper" not in offered(paths={})
    with pytest.raises(ContainerConfigError, match="nobody listens"):
        devices.socket_mounts(container)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert offered(paths={}) == {"devices.kubevirt.io/pr-helper": "1000"}
        [mount] = devices.socket_mounts(container)
        assert (mount["source"], mount["destination"]) == (str(tmp_path), "/var/run/kubevirt/daemons/pr")
        assert "ro" in mount["options"]
    assert devices_of(container, {}) == []


def test_what_a_machine_offers() -> None:
    machine = Machine(cpus=2, memory=4 << 30, disk=10 << 30, devices={"devices.kubevirt.io/tun": "1000"})
    assert machine.capacity()["memory"] == f"{4 << 20}Ki"
    assert machine.allocatable()["memory"] == f"{(4 << 20) - (256 << 10)}Ki"
    assert machine.allocatable()["devices.kubevirt.io/tun"] == "1000"


LINE = b"2026-01-01T10:00:00.123456789+00:00 stdout F hello there\n"


def test_log_lines() -> None:
    assert render_line(LINE, LogOptions()) == b"hello there\n"
    assert render_line(LINE.replace(b" F ", b" P "), LogOptions()) == b"hello there"
    assert render_line(LINE, LogOptions(timestamps=True)) == b"2026-01-01T10:00:00.123456789Z hello there\n"
    assert render_line(LINE, LogOptions(since=datetime(2026, 1, 1, 11, tzinfo=UTC))) == b""
    assert render_line(b"torn", LogOptions()) == b""


def test_log_options() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    found = parse_options({"follow": "true", "tailLines": "5", "sinceSeconds": "3600", "limitBytes": "9"}, now)
    assert (found.follow, found.tail, found.limit) == (True, 5, 9)
    assert found.since == datetime(2026, 1, 1, 11, tzinfo=UTC)


@pytest.mark.parametrize(("lines", "rest"), [(0, b""), (1, b"c\n"), (2, b"b\nc\n"), (9, b"a\nb\nc\n")])
def test_tail(lines: int, rest: bytes) -> None:
    stream = io.BytesIO(b"a\nb\nc\n")
    stream.seek(tail_offset(stream, lines))
    assert stream.read() == rest


def test_tail_of_a_long_log() -> None:
    stream = io.BytesIO(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 5000)
    stream.seek(tail_offset(stream, 5000))
    assert stream.read(1) == b"y"


def test_last_words(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(LINE * 3 + LINE.replace(b" F ", b" P "))
    assert last_log_lines(log) == "hello there\n" * 3 + "hello there"
    assert last_log_lines(tmp_path / "absent") == ""


def test_a_message_file_is_read_but_not_what_it_links_to(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("x" * 9000)
    assert len(read_message(tmp_path / "m")) == 4096
    (tmp_path / "l").symlink_to(tmp_path / "m")
    assert read_message(tmp_path / "l") == ""


@pytest.mark.parametrize(("name", "number"), [("SIGINT", 2), ("quit", 3), ("9", 9), ("", 15), ("SIGNONSENSE", 15)])
def test_stop_signals(name: str, number: int) -> None:
    assert signal_number(name) == number


def test_files_are_replaced_whole(tmp_path: Path) -> None:
    write_atomic(tmp_path / "f", b"1", 0o640)
    write_atomic(tmp_path / "f", b"2", 0o640)
    assert (tmp_path / "f").read_bytes() == b"2"
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_a_mount_is_never_walked_into() -> None:
    with pytest.raises(OSError, match="still mounted"):
        remove_tree(Path("/proc"))


def test_even_very_deep_trees_go(tmp_path: Path) -> None:
    """A container may nest directories deeper than Python's own removal follows."""
    top = tmp_path / "top"
    top.mkdir()
    fd = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    remove_tree(top)
    assert not top.exists()


def test_a_block_volume_must_be_a_device(tmp_path: Path) -> None:
    wish = from_plain({"name": "c", "volumeDevices": [{"name": "v", "devicePath": "/dev/xvda"}]}, Container)
    with pytest.raises(ContainerConfigError, match="'v' is not a block device"):
        block_devices(wish, {"v": Mounted(tmp_path)})
    with pytest.raises(ContainerConfigError, match="is no volume of the Pod"):
        block_devices(wish, {})


def test_runcs_words_without_their_wrapping() -> None:
    logged = 'time="2026" level=error msg="runc create failed: exec: \\"x\\": not found"\n'
    assert plain_message(f"a warning\n{logged}") == 'runc create failed: exec: "x": not found'
    assert plain_message("just text\n\n") == "just text"
    assert plain_message("") == ""
    assert plain_message("time=2026 level=error msg=EOF") == "EOF"


def test_the_same_failure_has_the_same_text() -> None:
    """A source port that changes would make a new event of each try."""
    tries = [f'level=fatal msg="lookup x: read udp 10.0.0.5:{port}->10.0.0.1:53: i/o timeout"' for port in (41873, 5)]
    assert {plain_message(each) for each in tries} == {"lookup x: read udp 10.0.0.5->10.0.0.1:53: i/o timeout"}


def test_the_node_tells_of_each_size_of_huge_pages(tmp_path: Path) -> None:
    """One of which there are none is told, too: the Node may still say what there was before."""
    for size, count in ((2048, 16), (1048576, 0)):
        (tmp_path / f"hugepages-{size}kB").mkdir()
        (tmp_path / f"hugepages-{size}kB/nr_hugepages").write_text(f"{count}\n")
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       1048576 kB\n")
    machine = read_machine(tmp_path, meminfo, tmp_path)
    assert machine.capacity().items() >= {"hugepages-2Mi": "32Mi", "hugepages-1Gi": "0", "memory": "1048576Ki"}.items()
    assert machine.allocatable()["memory"] == f"{(1024 - 32 - 256) << 10}Ki"


@pytest.mark.parametrize(
    ("limits", "pages"),
    [
        ([{"hugepages-2Mi": "64Mi", "cpu": "1"}], (2 << 20, 64 << 20)),
        ([{"hugepages-1Gi": "1Gi"}, {"hugepages-1Gi": "2Gi"}], (1 << 30, 3 << 30)),
        ([{"cpu": "1"}], None),
        ([{"hugepages-2Mi": "2Mi", "hugepages-1Gi": "1Gi"}], None),
    ],
)
def test_huge_pages_of_a_pod_have_one_size(limits: list[dict[str, str]], pages: tuple[int, int] | None) -> None:
    of = pod(containers=[{"name": f"c{n}", "resources": {"limits": each}} for n, each in enumerate(limits)])
    if pages is not None:
        assert huge_pages(of) == pages
        return
    with pytest.raises(VolumeError, match="one size of huge pages"):
        huge_pages(of)
