"""A real guest on the TAP that virt-netsetup made, opened as the launcher's user, without any privilege."""

from __future__ import annotations

import select
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen

import pytest

from tests.functional.guest.machine import FILES, Machine, kernel_boot

from .frames import mac_bytes, packed
from .lab import GUEST_MAC, MTU, POD_MAC, Lab, eventually
from .test_isolation import OTHER_MAC, WATCHER
from .test_netsetup import interface

pytestmark = [
    pytest.mark.root,
    pytest.mark.e2e,
    pytest.mark.skipif(not FILES.is_dir(), reason="build the guest first: make guest"),
]

# Opens the TAP as uid 107 and becomes QEMU. Without effective capabilities only the TAP's owner may do that.
AS_LAUNCHER = """
import fcntl, os, struct, sys
tun = os.open("/dev/net/tun", os.O_RDWR)
os.setgroups([])
os.setresgid(107, 107, 107)
os.setresuid(107, 107, 107)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"tap0", 0x0002 | 0x1000 | 0x4000))
os.dup2(tun, 30, inheritable=True)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "state") as made:
        yield made


def boot(lab: Lab, mac: str) -> Machine:
    network = ["-netdev", "tap,id=net,fd=30", "-device", f"virtio-net-pci,netdev=net,mac={mac},romfile="]
    prefix = ("ip", "netns", "exec", lab.pod, sys.executable, "-c", AS_LAUNCHER)
    machine = Machine(*kernel_boot(), *network, prefix=prefix)
    Path(machine.monitor).parent.chmod(0o777)
    return machine


def line(lab: Lab, namespace: str, address: str, port: int, text: str) -> str:
    code = (
        "import socket, sys; c = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=5); "
        "c.sendall(sys.argv[3].encode() + b'\\n'); print(c.makefile().readline(), end='')"
    )
    return lab.inside(namespace, sys.executable, "-c", code, address, str(port), text).strip()


def test_masquerade(lab: Lab) -> None:
    """Both families: addresses by DHCP and DHCPv6, the router by advertisement, NAT in both directions."""
    lab.netsetup("setup", interface("masquerade"))
    for address in ("0.0.0.0", "::"):
        lab.listen(lab.outside, 9000, address)
    with boot(lab, GUEST_MAC) as guest:
        guest.wait_for("virtpod guest: address 10.0.2.2/24 on eth0")
        guest.wait_for("virtpod guest: ready")
        guest.wait_for("by DHCPv6", within_s=30)
        assert guest.shell("hostname") == "vm1"
        assert guest.shell("cat /sys/class/net/eth0/mtu") == str(MTU)
        assert "search ns.svc.test svc.test" in guest.shell("cat /etc/resolv.conf")
        assert "nameserver 10.96.0.10" in guest.shell("cat /etc/resolv.conf")
        assert "nameserver fd96::a" in guest.shell("cat /etc/resolv.conf")
        assert "fd10:0:2::2" in guest.shell("ip -6 addr show dev eth0")
        assert line(lab, lab.outside, "10.99.0.5", 8080, "hello") == "vm1 hello"
        assert line(lab, lab.outside, "fd99::5", 8080, "six") == "vm1 six"
        assert line(lab, lab.pod, "127.0.0.1", 7, "loop") == "loop"
        assert "10.99.0.5" in guest.shell("nc -w 3 10.99.0.1 9000; echo")
        assert guest.shell("nc -w 3 fd99::1 9000; echo") == "fd99::5"


def test_masquerade_with_ipv6_only(tmp_path: Path) -> None:
    """Nobody answers its DHCP: address, way out and name server come by DHCPv6 and advertisement."""
    with Lab(tmp_path / "state", "6") as lab:
        lab.netsetup("setup", interface("masquerade"))
        lab.listen(lab.outside, 9000, "::")
        with boot(lab, GUEST_MAC) as guest:
            guest.wait_for("by DHCPv6", within_s=60)
            guest.wait_for("virtpod guest: ready", within_s=60)
            assert "fd10:0:2::2" in guest.shell("ip -6 addr show dev eth0")
            assert "10.0.2.2" not in guest.shell("ip -4 addr show dev eth0")
            assert "default via fe80::ff:fe00:0" in guest.shell("ip -6 route")
            assert "nameserver fd96::a" in guest.shell("cat /etc/resolv.conf")
            assert guest.shell("cat /proc/sys/net/ipv6/conf/eth0/mtu") == str(MTU)
            assert line(lab, lab.outside, "fd99::5", 7, "six") == "six"
            assert guest.shell("nc -w 3 fd99::1 9000; echo") == "fd99::5"


def test_bridge(lab: Lab) -> None:
    lab.netsetup("setup", interface("bridge", mac=""))
    lab.listen(lab.outside, 9000, "0.0.0.0")
    with boot(lab, POD_MAC) as guest:
        guest.wait_for("virtpod guest: address 10.99.0.5/24 on eth0")
        guest.wait_for("virtpod guest: ready")
        assert "10.98.0.0/16 via 10.99.0.2" in guest.shell("ip route")
        assert "default via 10.99.0.1" in guest.shell("ip route")
        assert line(lab, lab.outside, "10.99.0.5", 8080, "hello") == "vm1 hello"
        assert guest.shell("nc -w 3 10.99.0.1 9000; echo") == "10.99.0.5"
        eventually(lambda: POD_MAC in lab.ip(lab.outside, "neigh", "show", "10.99.0.5"))


def test_masqueraded_guest_that_lies(lab: Lab) -> None:
    """Root in the guest, with the tools of a guest: another sender in both families, and the Pod's loopback."""
    lab.netsetup("setup", interface("masquerade"))
    lab.listen(lab.pod, 9002, "127.0.0.1")
    wire = lab.start(lab.outside, WATCHER, arguments=("to-pod",))
    with boot(lab, GUEST_MAC) as guest:
        guest.wait_for("by DHCPv6", within_s=60)
        guest.shell("ip addr add 10.66.66.66/32 dev eth0; ip -6 addr add fd66::66/128 dev eth0 nodad")
        guest.shell("ping -c 2 -W 1 -I 10.66.66.66 10.99.0.1; ping -6 -c 2 -W 1 -I fd66::66 fd99::1")
        guest.shell("ip addr del 127.0.0.1/8 dev lo; ip route add 127.0.0.1/32 via 10.0.2.1 src 10.0.2.2")
        guest.shell("for each in all eth0; do echo 1 >/proc/sys/net/ipv4/conf/$each/route_localnet; done")
        assert "10.0.2.2" not in guest.shell("nc -w 3 127.0.0.1 9002; echo")
        guest.shell("ping -c 1 -W 1 -p 77 10.99.0.1")
        senders = frames_until(wire, b"\x77" * 16)
    lies = [packed("10.66.66.66"), packed("fd66::66")]
    assert not [frame for frame in senders if any(lie in frame for lie in lies)]


def test_bridged_guest_that_lies(lab: Lab) -> None:
    """It claims its neighbour's address by ARP, and takes another MAC."""
    lab.netsetup("setup", interface("bridge", mac=""))
    wire = lab.start(lab.outside, WATCHER, arguments=("to-pod",))
    with boot(lab, POD_MAC) as guest:
        guest.wait_for("virtpod guest: address 10.99.0.5/24 on eth0")
        guest.wait_for("virtpod guest: ready")
        lab.ip(lab.outside, "neigh", "replace", "10.99.0.77", "lladdr", OTHER_MAC, "dev", "to-pod", "nud", "stale")
        guest.shell("ip addr add 10.99.0.77/32 dev eth0; ip -6 addr add fd99::77/128 dev eth0 nodad")
        guest.shell("arping -U -c 2 -I eth0 -s 10.99.0.77 10.99.0.77; ping -c 1 -W 1 -I 10.99.0.77 10.99.0.1")
        guest.shell("ping -6 -c 1 -W 1 -I fd99::77 fd99::1")
        guest.shell(f"ip link set eth0 down; ip link set eth0 address {OTHER_MAC}; ip link set eth0 up")
        guest.shell("ping -c 1 -W 1 -I 10.99.0.5 10.99.0.1")
        guest.shell(f"ip link set eth0 down; ip link set eth0 address {POD_MAC}; ip link set eth0 up")
        guest.shell("ping -c 3 -W 2 -p 77 -I 10.99.0.5 10.99.0.1", within_s=30)
        frames = frames_until(wire, b"\x77" * 16)
    lies = [packed("10.99.0.77"), packed("fd99::77"), mac_bytes(OTHER_MAC)]
    assert not [frame for frame in frames if any(lie in frame for lie in lies)]
    assert OTHER_MAC in lab.ip(lab.outside, "neigh", "show", "10.99.0.77")


def frames_until(wire: Popen[str], mark: bytes, within_s: float = 20) -> list[bytes]:
    """What was seen on the wire, up to an honest packet with this content."""
    frames: list[bytes] = []
    assert wire.stdout is not None
    while not frames or mark not in frames[-1]:
        assert select.select([wire.stdout], [], [], within_s)[0], f"no honest packet among {len(frames)} frames"
        frames.append(bytes.fromhex(wire.stdout.readline().strip()))
    return frames
