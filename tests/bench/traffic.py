"""Traffic of a guest through masquerade and bridge, and through a plain TAP with the same guest, in one run."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.rows import Row, show, times
from tests.functional.guest.machine import Machine, kernel_boot
from tests.functional.netsetup.lab import GUEST_MAC, MTU, POD_MAC, Lab
from tests.functional.netsetup.test_guest_network import AS_LAUNCHER
from tests.functional.netsetup.test_netsetup import interface

ROUNDS, MIB, TRIPS = 5, 64, 300
PORT, ECHO = 9100, 7
#: Takes all that one client sends; prints how many bytes a second that were.
SINK = """
import socket, sys, time
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
while True:
    connection, _ = server.accept()
    size, buffer = connection.recv_into(bytearray(1 << 20)), bytearray(1 << 20)
    start = time.monotonic()
    while got := connection.recv_into(buffer):
        size += got
    print(int(size / (time.monotonic() - start)), flush=True)
    connection.close()
"""
#: Round trips of one byte; prints their median in microseconds.
TRIP = """
import socket, statistics, sys, time
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as connection:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    took = []
    for _ in range(int(sys.argv[3])):
        start = time.monotonic()
        connection.sendall(b"x")
        connection.recv(1)
        took.append(time.monotonic() - start)
print(int(statistics.median(took) * 1e6))
"""


@dataclass(frozen=True)
class Speed:
    bytes_per_second: float
    trip_us: float


@contextmanager
def guest(lab: Lab, namespace: str, mac: str) -> Iterator[Machine]:
    network = ["-netdev", "tap,id=net,fd=30", "-device", f"virtio-net-pci,netdev=net,mac={mac},romfile="]
    prefix = ("ip", "netns", "exec", namespace, sys.executable, "-c", AS_LAUNCHER)
    machine = Machine(*kernel_boot(), *network, prefix=prefix)
    Path(machine.monitor).parent.chmod(0o777)
    with machine:
        machine.wait_for("virtpod guest: ready", within_s=120)
        yield machine


def measured(lab: Lab, machine: Machine, host: str, inside: str) -> Speed:
    """From the guest to `host`, and from there to the guest, which is reached at `inside`."""
    sink = lab.start(lab.outside, SINK, arguments=(host, str(PORT)))
    assert sink.stdout is not None
    found = []
    for _ in range(ROUNDS):
        machine.shell(f"dd if=/dev/zero bs=64k count={MIB * 16} 2>/dev/null | nc {host} {PORT}", within_s=120)
        found.append(float(sink.stdout.readline()))
    trip = lab.inside(lab.outside, sys.executable, "-c", TRIP, inside, str(ECHO), str(TRIPS))
    return Speed(statistics.median(found), float(trip))


def bound(binding: str) -> Speed:
    """The guest's own way, which virt-netsetup made."""
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder) / "state", "4") as lab:
        mac = GUEST_MAC if binding == "masquerade" else POD_MAC
        lab.netsetup("setup", interface(binding, mac=GUEST_MAC if binding == "masquerade" else ""))
        with guest(lab, lab.pod, mac) as machine:
            machine.wait_for("virtpod guest: address", within_s=60)
            return measured(lab, machine, "10.99.0.1", "10.99.0.5")


def plain() -> Speed:
    """A TAP and nothing behind it."""
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder) / "state", "4") as lab:
        lab.ip(lab.outside, "tuntap", "add", "tap0", "mode", "tap", "user", "107", "vnet_hdr")
        lab.ip(lab.outside, "link", "set", "tap0", "mtu", str(MTU), "up")
        lab.ip(lab.outside, "addr", "add", "10.95.0.1/24", "dev", "tap0")
        with guest(lab, lab.outside, GUEST_MAC) as machine:
            machine.shell("killall udhcpc")
            machine.shell(f"ip link set eth0 mtu {MTU} up; ip addr add 10.95.0.2/24 dev eth0")
            return measured(lab, machine, "10.95.0.1", "10.95.0.2")


def rows() -> list[Row]:
    floor = plain()
    found: list[Row] = []
    for binding in ("masquerade", "bridge"):
        speed = bound(binding)
        found += [
            Row(
                f"guest to host by {binding} / by a plain TAP",
                f"{speed.bytes_per_second / (1 << 20):.0f} MiB/s",
                floor=f"{floor.bytes_per_second / (1 << 20):.0f} MiB/s",
                ratio=times(speed.bytes_per_second, floor.bytes_per_second),
            ),
            Row(
                f"round trip by {binding} / by a plain TAP",
                f"{speed.trip_us:.0f} us",
                floor=f"{floor.trip_us:.0f} us",
                ratio=times(speed.trip_us, floor.trip_us),
            ),
        ]
    return found


if __name__ == "__main__":
    show(rows())
