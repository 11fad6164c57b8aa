"""What a user of the machine who has no part in Virtpod can do with its files and sockets: found out by trying."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
from pathlib import Path

#: nobody: no files, no groups.
NOBODY = 65534

#: Runs as the stranger. Gets paths, says which of them opened, and how. A FIFO or a device does not hold it up.
_TRY = """
import json, os, socket, stat, sys

def attempt(path):
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return []
    done = []
    if stat.S_ISSOCK(mode):
        kinds = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM)
        return ["connect"] if any(connects(path, kind) for kind in kinds) else []
    for name, flags in (("read", os.O_RDONLY), ("write", os.O_WRONLY)):
        try:
            os.close(os.open(path, flags | os.O_NONBLOCK))
        except OSError:
            continue
        done.append(name)
    return done

def connects(path, kind):
    with socket.socket(socket.AF_UNIX, kind) as one:
        one.settimeout(5)
        try:
            one.connect(path)
        except OSError:
            return False
        return True

found = {path: attempt(path) for path in json.load(sys.stdin)}
print(json.dumps({path: done for path, done in found.items() if done}))
"""


def everything_below(root: Path) -> list[str]:
    """Every directory, file, link and socket, as root sees them: a stranger who guesses a name need not list."""
    found = [str(root)]
    for directory, inner, files in os.walk(root):
        found += [os.path.join(directory, name) for name in (*inner, *files)]
    return found


def opens(paths: list[str], uid: int = NOBODY) -> dict[str, list[str]]:
    """Path → what the stranger managed to do with it."""
    done = _as(uid, "/usr/bin/python3", "-c", _TRY, stdin=json.dumps(paths))
    done.check_returncode()
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def may_signal(pid: int, uid: int) -> bool:
    return _as(uid, "/bin/sh", "-c", f"kill -0 {pid}").returncode == 0


def _as(uid: int, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]
    return subprocess.run(
        [*user, *command], input=stdin, capture_output=True, text=True, timeout=120, check=False, cwd="/"
    )


def listeners(pids: list[int]) -> set[str]:
    """Where processes of this network namespace wait for callers: `tcp 127.0.0.1:443`, `unix /path`, `unix @name`."""
    inodes = {inode for pid in pids for inode in _sockets(pid)}
    return _tcp(inodes) | _unix(inodes)


def _sockets(pid: int) -> set[str]:
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(fd)
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            found.add(target.removeprefix("socket:[").rstrip("]"))
    return found


def _tcp(inodes: set[str]) -> set[str]:
    listening = "0A"
    lines = [line for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    rows = [line.split() for line in lines]
    return {f"tcp {_address(row[1])}" for row in rows if row[3] == listening and row[9] in inodes}


def _address(text: str) -> str:
    """Words of four bytes in the machine's own order. IPv4 in an IPv6 socket is IPv4."""
    words, port = text.split(":")
    packed = b"".join(int(words[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(words), 8))
    address = ipaddress.ip_address(packed)
    plain = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return f"{plain or address}:{int(port, 16)}"


def _unix(inodes: set[str]) -> set[str]:
    accepts = 0x10000
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    named = (row for row in rows if len(row) > 7 and row[6] in inodes and int(row[3], 16) & accepts)
    return {f"unix {row[7]}" for row in named}
