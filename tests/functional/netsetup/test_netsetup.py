"""virt-netsetup as the handler runs it, in real namespaces, with real DHCP, NAT and TCP."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .lab import GUEST_MAC, MTU, POD_MAC, Lab, eventually, run

pytestmark = pytest.mark.root
BINDINGS = ["masquerade", "bridge"]


def interface(binding: str, **more: Any) -> list[dict[str, Any]]:
    names = {"hostname": "vm1", "searchDomains": ["ns.svc.test", "svc.test"], "dnsServers": ["10.96.0.10", "fd96::a"]}
    return [{"name": "default", "binding": binding, "mac": GUEST_MAC, **names, **more}]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "state") as made:
        yield made


@pytest.mark.parametrize("families", ["4", "6", "46"])
@pytest.mark.parametrize("binding", BINDINGS)
def test_setup_is_idempotent_and_teardown_leaves_nothing(tmp_path: Path, binding: str, families: str) -> None:
    with Lab(tmp_path / "state", families) as lab:
        before = lab.snapshot()
        first = lab.netsetup("setup", interface(binding))
        wired, servers = lab.snapshot(), lab.servers()
        assert wired != before
        assert len(servers) == (0 if (binding, families) == ("bridge", "6") else 1)
        assert lab.netsetup("setup", interface(binding)) == first
        assert lab.netsetup("check", interface(binding)) == first
        assert (lab.snapshot(), lab.servers()) == (wired, servers)
        assert lab.netsetup("teardown", []) == {}
        assert lab.snapshot() == before
        assert lab.servers() == []
        assert not list(tmp_path.rglob("*.json"))


def test_masquerade_reports_and_wires(lab: Lab) -> None:
    report = lab.netsetup("setup", interface("masquerade", queues=2))["interfaces"][0]
    assert report == {
        "name": "default", "tap": "tap0", "mac": GUEST_MAC, "mtu": MTU, "bridge": "k6t-eth0", "podInterface": "eth0",
        "podIps": ["10.99.0.5", "fd99::5"], "guestIps": ["10.0.2.2", "fd10:0:2::2"],
        "gateway": "10.0.2.1", "gatewayIpv6": "fd10:0:2::1",
    }  # fmt: skip
    tap = json.loads(lab.ip(lab.pod, "-j", "-d", "link", "show", "tap0"))[0]
    assert (tap["mtu"], tap["master"]) == (MTU, "k6t-eth0")
    facts = tap["linkinfo"]["info_data"]
    assert (str(facts["user"]), str(facts["group"]), facts["multi_queue"], facts["persist"]) == (
        "107",
        "107",
        True,
        True,
    )
    bridge = json.loads(lab.ip(lab.pod, "-j", "link", "show", "k6t-eth0"))[0]
    assert (bridge["address"], bridge["mtu"]) == ("02:00:00:00:00:00", MTU)


def test_masquerade_dhcp_and_nat(lab: Lab, tmp_path: Path) -> None:
    lab.netsetup("setup", interface("masquerade"))
    lab.plug_guest()
    told = lab.lease(tmp_path / "client.sh")
    assert (told["ip"], told["mask"], told["router"]) == ("10.0.2.2", "24", "10.0.2.1")
    assert (told["dns"], told["mtu"], told["hostname"]) == ("10.96.0.10", str(MTU), "vm1")
    assert (told["search"], told["domain"]) == ("ns.svc.test svc.test", "ns.svc.test")
    assert int(told["lease"]) > 900 * 86400
    lab.listen(lab.outside, 9000, "0.0.0.0")
    lab.listen(lab.guest, 9001, "0.0.0.0")
    assert lab.connect(lab.guest, "10.99.0.1", 9000) == "10.99.0.5", "outbound traffic carries the Pod's address"
    assert lab.connect(lab.outside, "10.99.0.5", 9001) == "10.99.0.1", "inbound traffic keeps its sender"
    assert lab.connect(lab.pod, "127.0.0.1", 9001) == "10.0.2.1", "loopback of the Pod reaches the guest"


def test_masquerade_nat_ipv6(lab: Lab) -> None:
    lab.netsetup("setup", interface("masquerade"))
    lab.plug_guest()
    lab.ip(lab.guest, "addr", "add", "fd10:0:2::2/120", "dev", "eth0", "nodad")
    lab.ip(lab.guest, "-6", "route", "add", "default", "via", "fd10:0:2::1")
    lab.listen(lab.outside, 9000, "::")
    lab.listen(lab.guest, 9001, "::")
    assert lab.connect(lab.guest, "fd99::1", 9000) == "fd99::5"
    assert lab.connect(lab.outside, "fd99::5", 9001) == "fd99::1"


def test_masquerade_listed_ports_only(lab: Lab, tmp_path: Path) -> None:
    lab.netsetup("setup", interface("masquerade", ports=[{"port": 9001}, {"port": 53, "protocol": "UDP"}]))
    lab.plug_guest()
    lab.lease(tmp_path / "client.sh")
    for port in (9001, 9002):
        lab.listen(lab.guest, port, "0.0.0.0")
    assert lab.connect(lab.outside, "10.99.0.5", 9001) == "10.99.0.1"
    assert lab.connect(lab.outside, "10.99.0.5", 9002) == ""
    lab.netsetup("setup", interface("masquerade", ports=[{"port": 9002}]))
    assert lab.connect(lab.outside, "10.99.0.5", 9002) == "10.99.0.1"
    assert lab.connect(lab.outside, "10.99.0.5", 9001) == ""


def test_bridge_gives_the_guest_the_pods_place(lab: Lab, tmp_path: Path) -> None:
    lab.netsetup("setup", interface("bridge", mac=""))
    lab.plug_guest(mac=POD_MAC)
    told = lab.lease(tmp_path / "client.sh")
    assert (told["ip"], told["mask"], told["router"]) == ("10.99.0.5", "24", "10.99.0.1")
    assert told["staticroutes"] == "10.98.0.0/16 10.99.0.2 0.0.0.0/0 10.99.0.1"
    lab.listen(lab.outside, 9000, "0.0.0.0")
    lab.listen(lab.guest, 9001, "0.0.0.0")
    assert lab.connect(lab.guest, "10.99.0.1", 9000) == "10.99.0.5"
    assert lab.connect(lab.outside, "10.99.0.5", 9001) == "10.99.0.1"
    assert POD_MAC in lab.ip(lab.outside, "neigh", "show", "10.99.0.5"), "only the guest answers for the address"


def test_bridge_server_answers_nobody_else(lab: Lab, tmp_path: Path) -> None:
    lab.netsetup("setup", interface("bridge", mac=""))
    lab.plug_guest(mac="02:99:99:99:99:99")
    assert lab.lease(tmp_path / "client.sh", check=False) == {}


def test_failing_server_undoes_everything(lab: Lab) -> None:
    """Somebody else has the DHCP port, which shows at the last step: the Pod's NIC must be back in its place."""
    before = lab.snapshot()
    squatter = lab.start(lab.pod, SQUATTER)
    report = lab.netsetup("setup", interface("bridge"), check=False)
    assert report["error"]["step"] == "StartDhcp"
    assert "Address already in use" in report["error"]["message"]
    assert lab.snapshot() == before
    squatter.kill()
    squatter.wait(timeout=10)
    lab.netsetup("setup", interface("bridge"))


def test_dead_server_is_noticed_and_replaced(lab: Lab) -> None:
    lab.netsetup("setup", interface("masquerade"))
    [pid] = lab.servers()
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not lab.servers())
    assert lab.netsetup("check", interface("masquerade"), check=False)["error"]["step"] == "StartDhcp"
    lab.netsetup("setup", interface("masquerade"))
    assert len(lab.servers()) == 1


def test_two_pods_of_one_vmi_are_wired_side_by_side(lab: Lab, tmp_path: Path) -> None:
    """A guest that moves within a machine: each side has its own DHCP server, and only the MAC is the VMI's."""
    wish = interface("masquerade", mac="")
    with Lab(lab.state, uid=lab.uid) as other:
        first, second = (each.netsetup("setup", wish) for each in (lab, other))
        assert first["interfaces"] == second["interfaces"]
        assert first["servers"] != second["servers"]
        for number, each in enumerate((lab, other)):
            each.plug_guest(mac=first["interfaces"][0]["mac"])
            assert each.lease(tmp_path / f"client{number}.sh")["ip"] == "10.0.2.2"
        [server] = lab.servers()
        other.netsetup("teardown", [])
        assert (lab.servers(), other.servers()) == ([server], [])
        assert lab.netsetup("check", wish) == first
        assert other.netsetup("check", wish, check=False)["error"]["message"] == "eth0 was never set up"


def test_plan_of_an_older_handler_is_still_taken_down(lab: Lab) -> None:
    """It knew the VMI only, and so did its state directory."""
    before = lab.snapshot()
    lab.netsetup("setup", interface("masquerade"), podUid="")
    assert [path.name for path in lab.state.iterdir()] == [lab.uid]
    lab.netsetup("teardown", [], podUid="")
    assert lab.snapshot() == before
    assert not list(lab.state.iterdir())


def test_absent_interface_is_named(lab: Lab) -> None:
    report = lab.netsetup("setup", interface("masquerade", podInterface="net9"), check=False)
    assert report["error"]["message"] == "the Pod has no interface net9 (it has: eth0, lo)"


def test_server_lives_and_dies_with_the_pods_first_process(lab: Lab) -> None:
    """It joins the Pod's PID namespace and cgroups: when the launcher ends, the kernel ends the server."""
    launcher = lab.start(lab.pod, FIRST_PROCESS, "unshare", "--pid", "--fork", "--kill-child")
    pod_pid = int(run("pgrep", "-P", str(launcher.pid)).stdout)
    with pod_cgroup(pod_pid) as folders:
        lab.netsetup("setup", interface("masquerade"), podPid=pod_pid)
        [server] = lab.servers()
        assert os.readlink(f"/proc/{server}/ns/pid") == os.readlink(f"/proc/{pod_pid}/ns/pid")
        assert folders
        for folder in folders:
            assert str(server) in (folder / "cgroup.procs").read_text().split()
        assert lab.netsetup("check", interface("masquerade"), podPid=pod_pid)
        os.kill(pod_pid, signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{server}").exists())
        launcher.wait(timeout=10)
    # The namespace is still there by its name, but the handler asks by the process, which is gone.
    assert lab.netsetup("teardown", [], podPid=pod_pid) == {}
    assert not list(lab.state.rglob("*.json"))


SQUATTER = """
import socket
taken = socket.socket(type=socket.SOCK_DGRAM)
taken.bind(("", 67))
print("ready", flush=True)
input()
"""
FIRST_PROCESS = """
import os, time
print("ready", flush=True)
while True:
    try:
        os.waitpid(-1, 0)
    except ChildProcessError:
        time.sleep(0.01)
"""


class pod_cgroup:
    """A cgroup for the process in each hierarchy of the machine."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._folders: list[Path] = []

    def __enter__(self) -> list[Path]:
        from virt_netsetup.cgroups import files_of

        for file in files_of(self._pid, but_not={}):
            folder = file.parent / f"nst-{self._pid}"
            folder.mkdir()
            self._folders.append(folder)
            self._prepare(folder)
            (folder / "cgroup.procs").write_text(str(self._pid))
        return self._folders

    def _prepare(self, folder: Path) -> None:
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (folder / name).exists() and not (folder / name).read_text().strip():
                (folder / name).write_text((folder.parent / name).read_text())

    def __exit__(self, *_: object) -> None:
        for folder in self._folders:
            eventually(lambda folder=folder: not (folder / "cgroup.procs").read_text())
            folder.rmdir()
