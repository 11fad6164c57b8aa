"""A network of its own for the bare machine, joined to this one's by a bridge and an address translation.

So its fixed ports and addresses never meet those of a `make run` or a cluster out here, and whatever is left in it goes
with it. It must still reach the packages. Where it cannot (a proxy or a name server on this machine's loopback, a
firewall that forwards nothing), the machine uses the network out here, and what it leaves there is left.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import runs

FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
#: How it was before the first of the machines that run now; the last one restores it.
FORWARDED = Path("/run/virtpod-fresh.forwarding")
NAMESPACES = Path("/run/netns")
#: A range that is for measurements between networks (RFC 2544), so nobody routes it; the process's number picks a /30.
RANGE = "198.18"
_REACH = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 10).close()"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=30)


@contextlib.contextmanager
def own(goal: str) -> Iterator[str]:
    """The name of a network namespace from which the URL `goal` can be reached, or nothing."""
    name = runs.own_name()
    for dead in runs.dead(NAMESPACES):
        _remove(dead.name)
    try:
        try:
            _make(name)
            _reach(name, goal)
        except (OSError, subprocess.SubprocessError) as error:
            why = getattr(error, "stderr", None) or str(error)
            _remove(name)
            name = ""
            print(f"== no network of its own, because packages are out of reach from it: {_last_line(why)}", flush=True)
        yield name
    finally:
        if name:
            _remove(name)


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def _bridge(name: str) -> str:
    """A bridge tells virt-local's `down` that somebody else here needs forwarding."""
    return f"vpf{name.rpartition('-')[2]}"


def _make(name: str) -> None:
    number = os.getpid() % 16384
    here, there = (f"{RANGE}.{number // 64}.{number % 64 * 4 + last}" for last in (1, 2))
    bridge = _bridge(name)
    ip("netns", "add", name)
    ip("link", "add", bridge, "type", "bridge")
    ip("addr", "add", f"{here}/30", "dev", bridge)
    ip("link", "set", bridge, "up")
    ip("link", "add", f"{bridge}p", "master", bridge, "type", "veth", "peer", "name", "eth0", "netns", name)
    ip("link", "set", f"{bridge}p", "up")
    ip("-n", name, "addr", "add", f"{there}/30", "dev", "eth0")
    for link in ("lo", "eth0"):
        ip("-n", name, "link", "set", link, "up")
    ip("-n", name, "route", "add", "default", "via", here)
    _translate(name, there)


def _translate(name: str, address: str) -> None:
    if not FORWARDED.exists():
        FORWARDED.write_text(FORWARDING.read_text())
    FORWARDING.write_text("1")
    chain = f"chain out {{ type nat hook postrouting priority srcnat\nip saddr {address} masquerade\n }}"
    rules = f"table ip {name} {{ {chain}\n }}\n"
    subprocess.run(["nft", "-f", "-"], input=rules, check=True, capture_output=True, text=True, timeout=30)


def _reach(name: str, goal: str) -> None:
    place = urlsplit(goal)
    port = place.port or (443 if place.scheme == "https" else 80)
    command = ["nsenter", f"--net={NAMESPACES / name}", sys.executable, "-c", _REACH, place.hostname or "", str(port)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)


def _remove(name: str) -> None:
    # The pair of links goes with its other end.
    bridge = ["ip", "link", "del", _bridge(name)]
    for command in (["ip", "netns", "del", name], bridge, ["nft", "delete", "table", "ip", name]):
        subprocess.run(command, check=False, capture_output=True, timeout=30)
    others = runs.all_of(NAMESPACES) or list(Path("/sys/class/net").glob("*/bridge"))
    if FORWARDED.exists() and not others:
        FORWARDING.write_text(FORWARDED.read_text())
        FORWARDED.unlink()
