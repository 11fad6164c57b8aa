"""Bindings of plugins and passt in real namespaces: what virt-netsetup makes, and a guest that uses it."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from virt_core.apis.base import from_plain
from virt_core.apis.interfaces import Interface
from virt_launcher.passt.carrier import arguments

from .lab import GUEST_MAC, MTU, POD_MAC, Lab, eventually, run
from .test_netsetup import interface

pytestmark = pytest.mark.root
SECOND = "pod16477688c0e"
TAP = "tap16477688c0e"
PORTS = [{"port": 80}, {"port": 5000, "protocol": "UDP"}]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "state") as made:
        yield made


def test_a_managed_tap_is_a_bridge_without_dhcp(lab: Lab, tmp_path: Path) -> None:
    report = lab.netsetup("setup", interface("managedTap", mac=""))["interfaces"][0]
    assert (report["tap"], report["mac"], report["mtu"], report["bridge"]) == ("tap0", POD_MAC, MTU, "k6t-eth0")
    assert report["podIps"] == ["10.99.0.5", "fd99::5"]
    assert lab.servers() == []
    assert "169.254.75" not in lab.ip(lab.pod, "addr")
    lab.plug_guest(POD_MAC)
    assert lab.lease(tmp_path / "client.sh", check=False) == {}, "nobody answers"
    lab.ip(lab.guest, "addr", "add", "10.99.0.5/24", "dev", "eth0")
    lab.listen(lab.outside, 9000, "0.0.0.0")
    lab.listen(lab.guest, 9001, "0.0.0.0")
    assert lab.connect(lab.guest, "10.99.0.1", 9000) == "10.99.0.5"
    assert lab.connect(lab.outside, "10.99.0.5", 9001) == "10.99.0.1"
    lab.ip(lab.guest, "addr", "add", "10.99.0.77/24", "dev", "eth0")
    lab.ip(lab.guest, "addr", "del", "10.99.0.5/24", "dev", "eth0")
    assert lab.connect(lab.guest, "10.99.0.1", 9000) == "", "an address that is not its own gets nowhere"


@pytest.mark.parametrize("beside", [True, False])
def test_a_tap_of_the_cni_plugin_is_used_and_left_alone(lab: Lab, beside: bool) -> None:
    """Beside the Pod's interface under its name, or the interface itself; taking down takes nothing away."""
    if beside:
        lab.ip(lab.pod, "link", "add", SECOND, "type", "bridge")
    name = TAP if beside else SECOND
    lab.ip(lab.pod, "tuntap", "add", name, "mode", "tap", "user", "107")
    lab.ip(lab.pod, "link", "set", name, "address", GUEST_MAC, "up")
    before = lab.snapshot()
    wish = [{"name": "blue", "binding": "tap", "podInterface": SECOND}]
    report = lab.netsetup("setup", wish)["interfaces"][0]
    assert report["tap"] == name
    assert lab.snapshot() == before
    assert lab.netsetup("check", wish)["interfaces"] == [report]
    lab.netsetup("teardown", [])
    assert lab.snapshot() == before


def test_without_a_tap_of_the_cni_plugin_it_says_so(lab: Lab) -> None:
    error = lab.netsetup("setup", interface("tap"), check=False)["error"]
    assert error["critical"] is True
    assert error["message"] == "the CNI plugin of the binding made no TAP: neither is eth0 one, nor is there a tap0"


def test_a_sidecars_nic_is_told_of_and_nothing_is_made(lab: Lab) -> None:
    before = lab.snapshot()
    report = lab.netsetup("setup", interface("sidecar", mac=""))["interfaces"][0]
    assert report == {
        "name": "default", "mac": POD_MAC, "mtu": MTU, "podInterface": "eth0",
        "podIps": ["10.99.0.5", "fd99::5"], "guestIps": ["10.99.0.5", "fd99::5"],
    }  # fmt: skip
    assert lab.snapshot() == before


# -- passt -------------------------------------------------------------------------------------------------------------

SYSCTLS = ("/proc/sys/net/ipv4/ping_group_range", "/proc/sys/net/ipv4/ip_unprivileged_port_start")
#: What a Pod's seccomp profile does to whoever wants namespaces and mounts, and then the child of the launcher.
CONFINED = f"""
import os, sys
from virt_launcher.passt import become
instructions = bytearray(become.program(os.uname().machine))
for place in range(0, len(instructions), 8):
    if instructions[place:place + 8] == b"\\x06\\0\\0\\0\\0\\0\\x05\\0":
        instructions[place + 4] = {errno.EPERM}
become.answer_with_success(bytes(instructions))
sys.argv[1:] = sys.argv[2:] if sys.argv[1] == "become" else sys.argv[1:]
"""
BECOME = CONFINED + "sys.exit(become.main())"
BARE = CONFINED + 'passt = become.find(os.environ["PATH"]); os.execv(passt, [passt, *sys.argv[1:]])'
#: A TAP in the guest's namespace, and passt's socket in place of QEMU: each frame behind its length.
PLUG = """
import fcntl, os, select, socket, struct, sys
passt = socket.socket(socket.AF_UNIX)
passt.connect(sys.argv[1])
guest = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
fcntl.ioctl(guest, 0x400454CA, struct.pack("16sH22x", b"eth0", 0x0002 | 0x1000))
print("ready", flush=True)
held = b""
while True:
    for end in select.select([passt, guest], [], [])[0]:
        if end is guest:
            frame = os.read(guest, 70000)
            passt.sendall(struct.pack("!I", len(frame)) + frame)
            continue
        data = passt.recv(1 << 20)
        if not data:
            sys.exit()
        held += data
        while len(held) >= 4 and len(held) >= 4 + (size := struct.unpack("!I", held[:4])[0]):
            frame, held = held[4 : 4 + size], held[4 + size :]
            try:
                os.write(guest, frame)
            except OSError:
                pass
"""
UDP_ECHO = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 5000))
print("ready", flush=True)
while True:
    data, peer = server.recvfrom(65536)
    server.sendto(data + peer[0].encode(), peer)
"""
UDP_ASK = """
import socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(3)
client.sendto(b"from ", (sys.argv[1], 5000))
print(client.recv(100).decode())
"""


def as_launcher(lab: Lab, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    rights = ("setpriv", "--reuid", "107", "--regid", "107", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all")
    return run("ip", "netns", "exec", lab.pod, *rights, sys.executable, "-c", code, *words, check=False)


@pytest.fixture
def carried(lab: Lab, tmp_path: Path) -> Iterator[Path]:
    """A guest by passt, which runs as in a Pod: no rights, and no namespaces to be had."""
    lab.netsetup("setup", interface("passtBinding"))
    room = Path(f"/tmp/{lab.pod}")
    room.mkdir(mode=0o700)
    os.chown(room, 107, 107)
    nic = from_plain({"name": "default", "passtBinding": {}, "ports": PORTS}, Interface)
    done = as_launcher(lab, BECOME, "become", *arguments(nic, room, "vm1"))
    assert done.returncode == 0, done.stderr
    pid = int((room / "passt.pid").read_text())
    lab.start(lab.guest, PLUG, arguments=(str(room / "passt.sock"),))
    lab.ip(lab.guest, "link", "set", "eth0", "address", GUEST_MAC, "up")
    yield room
    if Path(f"/proc/{pid}").exists():
        os.kill(pid, signal.SIGKILL)
    run("rm", "-r", str(room))


def test_passt_as_it_comes_does_not_start_in_a_pod(lab: Lab, tmp_path: Path) -> None:
    """Why there is virt_launcher.passt.become: should this fail, passt has learned to do without."""
    done = as_launcher(lab, BARE, "--socket", "/tmp/never", "--pid", "/tmp/never.pid")
    assert done.returncode != 0
    assert "user namespace" in done.stderr


def test_what_passt_may_is_put_back(lab: Lab) -> None:
    before = lab.inside(lab.pod, "cat", *SYSCTLS)
    report = lab.netsetup("setup", interface("passtBinding"))["interfaces"][0]
    assert (report.get("tap"), report["mac"], report["podIps"]) == (None, GUEST_MAC, ["10.99.0.5", "fd99::5"])
    assert lab.inside(lab.pod, "cat", *SYSCTLS).split() == ["107", "107", "0"]
    assert lab.netsetup("setup", interface("passtBinding"))["interfaces"] == [report]
    lab.netsetup("teardown", [])
    assert lab.inside(lab.pod, "cat", *SYSCTLS) == before


def test_a_guest_by_passt_has_the_pods_addresses_and_both_ways(lab: Lab, carried: Path, tmp_path: Path) -> None:
    told = lab.lease(tmp_path / "client.sh")
    assert (told["ip"], told["router"], told["hostname"]) == ("10.99.0.5", "10.99.0.1", "vm1")
    lab.listen(lab.outside, 9000, "0.0.0.0")
    lab.listen(lab.guest, 80, "0.0.0.0")
    lab.listen(lab.guest, 81, "0.0.0.0")
    assert lab.connect(lab.guest, "10.99.0.1", 9000) == "10.99.0.5", "outbound traffic carries the Pod's address"
    assert lab.connect(lab.outside, "10.99.0.5", 80) == "10.99.0.1", "inbound traffic keeps its sender"
    assert lab.connect(lab.outside, "10.99.0.5", 81) == "", "a port that is not listed"
    lab.start(lab.guest, UDP_ECHO)
    assert lab.inside(lab.outside, sys.executable, "-c", UDP_ASK, "10.99.0.5").strip() == "from 10.99.0.1"
    assert "0% packet loss" in lab.inside(lab.guest, "busybox", "ping", "-c", "1", "-W", "2", "10.99.0.1")


def test_a_guest_by_passt_has_ipv6(lab: Lab, carried: Path) -> None:
    """Its address by DHCPv6 or from the router's prefix; here it just takes the Pod's, which passt hands out."""
    lab.ip(lab.guest, "addr", "add", "fd99::5/64", "dev", "eth0", "nodad")
    eventually(lambda: "default via fe80" in lab.ip(lab.guest, "-6", "route"), within_s=15)
    lab.listen(lab.outside, 9000, "::")
    lab.listen(lab.guest, 80, "::")
    assert lab.connect(lab.guest, "fd99::1", 9000) == "fd99::5"
    assert lab.connect(lab.outside, "fd99::5", 80) == "fd99::1"


def test_a_guest_by_passt_does_not_reach_the_pods_loopback(lab: Lab, carried: Path, tmp_path: Path) -> None:
    lab.lease(tmp_path / "client.sh")
    lab.listen(lab.pod, 9002, "127.0.0.1")
    assert lab.connect(lab.pod, "127.0.0.1", 9002) == "127.0.0.1"
    for address in ("10.99.0.1", "10.99.0.5"):
        assert lab.connect(lab.guest, address, 9002) == ""


def test_passt_goes_when_the_machine_goes(lab: Lab, carried: Path) -> None:
    pid = int((carried / "passt.pid").read_text())
    status = Path(f"/proc/{pid}/status").read_text()
    assert re.search(r"CapEff:\s+0+\n", status)
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    lab.children[-1].kill()
    eventually(lambda: not Path(f"/proc/{pid}").exists() or "Z (zombie)" in Path(f"/proc/{pid}/status").read_text())


def test_a_guest_that_moved_in_keeps_its_old_address_and_is_reached(lab: Lab, carried: Path) -> None:
    """passt takes what the guest says it is, and nobody outside sees it."""
    lab.ip(lab.guest, "addr", "add", "10.99.3.9/16", "dev", "eth0")
    lab.ip(lab.guest, "route", "add", "default", "via", "10.99.0.1")
    lab.listen(lab.outside, 9000, "0.0.0.0")
    lab.listen(lab.guest, 80, "0.0.0.0")
    assert lab.connect(lab.guest, "10.99.0.1", 9000) == "10.99.0.5"
    assert lab.connect(lab.outside, "10.99.0.5", 80) == "10.99.0.1"


#: As the launcher does it: a second start, after a QEMU that never came, ends what the first one left.
TWICE = """
import os, pathlib, sys, threading
from virt_core.apis.base import from_plain
from virt_core.apis.interfaces import Interface
from virt_launcher.errors import InvalidVMIError
from virt_launcher.passt.carrier import Carrier
from virt_launcher.process.children import Children, block_signals
block_signals()
children = Children()
children.adopt_orphans()
threading.Thread(target=children.run, args=(threading.Event(),), daemon=True).start()
room = pathlib.Path(sys.argv[1])
carrier = Carrier(room, children)
nic = from_plain({"name": "default", "passtBinding": {}, "ports": [{"port": 80}]}, Interface)
pids = []
for _ in range(2):
    carrier.begin("spec.domain.devices.interfaces[0]", nic, "vm1")
    pids.append(int((room / "passt.pid").read_text()))
print(pids[0] != pids[1], [os.path.exists(f"/proc/{pid}") for pid in pids], (room / "passt.sock").is_socket())
os.kill(pids[1], 9)
try:
    carrier.begin("spec.domain.devices.interfaces[0]", nic, "x" * 300)
except InvalidVMIError as error:
    print(str(error)[:90])
"""


def test_the_launcher_starts_it_again_and_repeats_its_last_words(lab: Lab) -> None:
    lab.netsetup("setup", interface("passtBinding"))
    room = Path(f"/tmp/{lab.pod}")
    room.mkdir(mode=0o700)
    os.chown(room, 107, 107)
    try:
        done = as_launcher(lab, TWICE, str(room))
    finally:
        run("rm", "-r", str(room))
    assert done.returncode == 0, done.stderr
    twice, words = [line for line in done.stdout.splitlines() if not line.startswith("{")]
    assert twice == "True [False, True] True"
    assert words.startswith("spec.domain.devices.interfaces[0].passtBinding: Invalid hostname: xxx")
