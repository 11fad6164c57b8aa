"""Real network namespaces for the tests: an outside, a Pod as a CNI plugin leaves it, and a guest on its bridge."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

POD_MAC = "0a:58:0a:63:00:05"
GUEST_MAC = "02:11:22:33:44:55"
MTU = 1400


def run(*command: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done


def _program(pid: str) -> str:
    """Nothing for a process that has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def namespaces() -> Iterator[str]:
    """Unique names, gone at the end."""
    tag = secrets.token_hex(3)
    yield from (f"nst-{tag}-{role}" for role in ("out", "pod", "guest"))


@dataclass
class Lab:
    """`families` says what the Pod's NIC has: 4, 6 or both."""

    state: Path
    families: str = "46"
    names: list[str] = field(default_factory=lambda: list(namespaces()))
    uid: str = field(default_factory=lambda: f"uid-{secrets.token_hex(4)}")
    pod_uid: str = field(default_factory=lambda: f"pod-{secrets.token_hex(4)}")
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def outside(self) -> str:
        return self.names[0]

    @property
    def pod(self) -> str:
        return self.names[1]

    @property
    def guest(self) -> str:
        return self.names[2]

    def __enter__(self) -> Lab:
        for name in self.names:
            run("ip", "netns", "add", name)
        self.ip(self.outside, "link", "add", "to-pod", "type", "veth", "peer", "name", "eth0", "netns", self.pod)
        self.ip(self.pod, "link", "set", "eth0", "address", POD_MAC, "mtu", str(MTU), "up")
        self.ip(self.outside, "link", "set", "to-pod", "mtu", str(MTU), "up")
        for name in self.names:
            self.ip(name, "link", "set", "lo", "up")
        self._addresses()
        return self

    def _addresses(self) -> None:
        if "4" in self.families:
            self.ip(self.outside, "addr", "add", "10.99.0.1/24", "dev", "to-pod")
            self.ip(self.pod, "addr", "add", "10.99.0.5/24", "dev", "eth0")
            self.ip(self.pod, "route", "add", "default", "via", "10.99.0.1")
            self.ip(self.pod, "route", "add", "10.98.0.0/16", "via", "10.99.0.2")
        if "6" in self.families:
            self.ip(self.outside, "addr", "add", "fd99::1/64", "dev", "to-pod", "nodad")
            self.ip(self.pod, "addr", "add", "fd99::5/64", "dev", "eth0", "nodad")
            self.ip(self.pod, "-6", "route", "add", "default", "via", "fd99::1")

    def __exit__(self, *_: object) -> None:
        for child in self.children:
            child.kill()
            child.wait(timeout=10)
            for stream in (child.stdin, child.stdout):
                assert stream is not None
                stream.close()
        self.netsetup("teardown", [], check=False)
        for name in self.names:
            run("ip", "netns", "del", name, check=False)

    def ip(self, namespace: str, *words: str, check: bool = True) -> str:
        return run("ip", "-n", namespace, *words, check=check).stdout

    def inside(self, namespace: str, *command: str, check: bool = True) -> str:
        return run("ip", "netns", "exec", namespace, *command, check=check).stdout

    def plan(self, action: str, interfaces: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        where = {"netnsPath": f"/run/netns/{self.pod}"} if "podPid" not in more else {}
        return {
            "vmiUid": self.uid,
            "podUid": self.pod_uid,
            "action": action,
            "stateDir": str(self.state),
            "interfaces": interfaces,
            **where,
            **more,
        }

    def netsetup(
        self, action: str, interfaces: list[dict[str, Any]], check: bool = True, **more: Any
    ) -> dict[str, Any]:
        request = json.dumps(self.plan(action, interfaces, **more))
        done = run(sys.executable, "-m", "virt_netsetup.main", check=False, input=request)
        assert not done.stderr, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (1 if "error" in report else 0)
        assert not check or "error" not in report, report
        return report

    def snapshot(self) -> str:
        """Everything that netsetup may touch, without counters, life times and carriers."""
        links = json.loads(self.ip(self.pod, "-j", "-d", "link"))
        shown = [{key: link.get(key) for key in ("ifname", "address", "mtu", "master", "linkinfo")} for link in links]
        for link in shown:
            (link["linkinfo"] or {}).pop("info_data", None)
            ((link["linkinfo"] or {}).get("info_slave_data") or {}).clear()
        parts = [
            json.dumps(shown, indent=1),
            self.ip(self.pod, "-o", "addr", "show", "scope", "global"),
            self.ip(self.pod, "route"),
            self.ip(self.pod, "-6", "route", "show", "default"),
            self.inside(self.pod, "nft", "-s", "list", "ruleset"),
            self.inside(self.pod, "cat", *SYSCTLS),
        ]
        return "\n".join(parts).replace(" linkdown", "")

    def servers(self) -> list[int]:
        """Processes of dnsmasq in the Pod's namespace."""
        pids = run("ip", "netns", "pids", self.pod).stdout.split()
        return [int(pid) for pid in pids if _program(pid) == "dnsmasq"]

    def plug_guest(self, mac: str = GUEST_MAC, tap: str = "tap0") -> None:
        """A guest without a machine: what it sends goes into the Pod's TAP as a machine's frames do."""
        self.start(self.pod, PLUG, arguments=(tap, f"/run/netns/{self.guest}"))
        self.ip(self.guest, "link", "set", "eth0", "address", mac, "up")

    def lease(self, script: Path, check: bool = True) -> dict[str, str]:
        """Asks for a DHCP lease as the guest; returns what the client was told."""
        script.write_text(CLIENT_SCRIPT)
        script.chmod(0o755)
        told = script.with_suffix(".told")
        command = ["busybox", "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "4", "-T", "1", "-s", str(script)]
        options = [word for name in ASKED for word in ("-O", name)]
        env = {**os.environ, "TOLD": str(told)}
        run("ip", "netns", "exec", self.guest, *command, *options, check=check, env=env)
        lines = told.read_text().splitlines() if told.exists() else []
        return dict(line.split("=", 1) for line in lines)

    def start(self, namespace: str, code: str, *prefix: str, arguments: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """A Python program that prints a line once it is ready; it ends with the lab."""
        command = ["ip", "netns", "exec", namespace, *prefix, sys.executable, "-c", code, *arguments]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        return child

    def listen(self, namespace: str, port: int, address: str, kind: str = "tcp") -> None:
        """A server that says who asks."""
        self.start(namespace, SERVER if kind == "tcp" else UDP_SERVER, arguments=(address, str(port)))

    def ask_udp(self, namespace: str, address: str, port: int) -> str:
        """The peer address that the server saw, or nothing."""
        words = ("ip", "netns", "exec", namespace, sys.executable, "-c", UDP_CLIENT, address, str(port))
        return run(*words, check=False).stdout.strip()

    def passes(self, namespace: str, address: str, port: int, size: int) -> bool:
        """Whether a packet of this size that may not be cut into pieces gets to a server of `listen` and back."""
        words = ("ip", "netns", "exec", namespace, sys.executable, "-c", WHOLE, address, str(port), str(size))
        return run(*words, check=False).stdout.strip() == "passed"

    def connect(self, namespace: str, address: str, port: int) -> str:
        """The peer address that the server saw, or nothing."""
        return run(
            "ip", "netns", "exec", namespace, sys.executable, "-c", CLIENT, address, str(port), check=False
        ).stdout.strip()


#: By the names that busybox has for them, or by number.
ASKED = ("search", "mtu", "staticroutes", "msstaticroutes", "routes", "ntpsrv", "tftp", "bootfile", "224", "225", "254")
SYSCTLS = [
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/ipv6/conf/all/forwarding",
    "/proc/sys/net/ipv4/conf/all/arp_ignore",
]
#: Holds the Pod's TAP open, as QEMU does, and a TAP of the guest's namespace, and carries frames between the two.
PLUG = """
import ctypes, fcntl, os, select, struct, sys
def tap(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(device, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x0002 | 0x1000))
    return device
pod = tap(sys.argv[1])
assert ctypes.CDLL(None).setns(os.open(sys.argv[2], os.O_RDONLY), 0x40000000) == 0
guest = tap("eth0")
print("ready", flush=True)
ends = select.poll()
for end in (pod, guest):
    ends.register(end, select.POLLIN)
while True:
    for end, _ in ends.poll():
        try:
            os.write(guest if end == pod else pod, os.read(end, 65536))
        except OSError:
            pass
"""
CLIENT_SCRIPT = """#!/bin/sh
[ "$1" = bound ] || exit 0
names='ip|mask|subnet|router|dns|search|domain|mtu|hostname|lease|ntpsrv|tftp|bootfile|opt[0-9]+'
env | grep -E "^($names|staticroutes|msstaticroutes|routes)=" >"$TOLD"
busybox ip addr add "$ip/$mask" dev "$interface"
for gateway in $router; do busybox ip route add default via "$gateway" dev "$interface"; done
[ -n "$mtu" ] && busybox ip link set "$interface" mtu "$mtu"
exit 0
"""
SERVER = """
import socket, sys
kind = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
server = socket.create_server((sys.argv[1], int(sys.argv[2])), family=kind)
print("ready", flush=True)
while True:
    connection, peer = server.accept()
    connection.sendall(peer[0].encode())
    connection.close()
"""
UDP_SERVER = """
import socket, sys
server = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
if ":" in sys.argv[1]:
    server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
server.bind((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    data, peer = server.recvfrom(65536)
    server.sendto(peer[0].encode() if len(data) < 100 else data, peer)
"""
#: A packet without permission to cut it; whoever has to tell that it is too large gets the time for that.
WHOLE = """
import socket, sys
address, port, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
six = ":" in address
client = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
client.setsockopt(41 if six else 0, 23 if six else 10, 2)
client.settimeout(2)
data = bytes(size - (48 if six else 28))
client.connect((address, port))
for _ in range(2):
    try:
        client.send(data)
        print("passed" if client.recv(65536) == data else "changed")
        break
    except OSError:
        pass
"""
UDP_CLIENT = """
import socket, sys
client = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(1)
for _ in range(3):
    try:
        client.connect((sys.argv[1], int(sys.argv[2])))
        client.send(b"who am I?")
        print(client.recv(100).decode())
        break
    except OSError:
        pass
"""
CLIENT = """
import socket, sys
print(socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3).recv(100).decode())
"""


def eventually(holds: Any, within_s: float = 5.0) -> None:
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)
