"""The guest's DHCP server as what a guest may take over, and our own files as what a local user may tamper with."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .lab import Lab, run
from .test_netsetup import interface

pytestmark = pytest.mark.root
STRANGER = 12345
CAPABILITIES = 1 << 10 | 1 << 12 | 1 << 13
BINDINGS = ["masquerade", "bridge"]

#: Gives up what the server gives up, then tries what nobody should be able to do from there.
PRISONER = """
import os, socket, sys
from virt_netsetup.confine import give_up
from virt_netsetup.dhcp import CAPABILITIES
give_up(CAPABILITIES)
def tried(what, act):
    try:
        act()
    except OSError:
        return
    print(what)
tried("a packet socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
tried("a raw IPv4 socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
tried("a TCP socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
tried("a unix socket", lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
tried("nftables", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12))
tried("a process", os.fork)
tried("another user", lambda: os.setuid(0))
tried("a signal", lambda: os.kill(os.getppid(), 0))
tried("a directory", lambda: os.mkdir("/tmp/prisoner"))
socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58).close()
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()
print("done")
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Lab(tmp_path / "state") as made:
        yield made


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize("binding", BINDINGS)
def test_server_has_nothing_that_it_does_not_need(lab: Lab, binding: str) -> None:
    lab.netsetup("setup", interface(binding))
    [pid] = lab.servers()
    status = status_of(pid)
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {"65527"}
    assert status["Groups"] == ""
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) & ~CAPABILITIES == 0, name
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert [line.split()[3:5] for line in limits.splitlines() if line.startswith("Max file size")] == [["0", "0"]]


def test_server_sees_its_program_and_nothing_else(lab: Lab) -> None:
    lab.netsetup("setup", interface("masquerade"))
    [pid] = lab.servers()
    mounts = [line.split()[4:6] for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    assert {path for path, _ in mounts} <= {
        "/", "/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/sbin/dnsmasq", "/dev/null", "/dev/urandom",
    }  # fmt: skip
    assert all({"ro", "nosuid"} <= set(options.split(",")) for _, options in mounts), mounts
    root = Path(f"/proc/{pid}/root")
    assert {path.name for path in root.iterdir()} <= {"usr", "lib", "lib64", "dev"}
    assert [path.name for path in (root / "usr/sbin").iterdir()] == ["dnsmasq"]
    kept = {os.readlink(f"/proc/{pid}/fd/{number}").split(":")[0] for number in os.listdir(f"/proc/{pid}/fd")}
    assert kept <= {"/dev/null", "pipe", "socket", "anon_inode"}, "no file of ours is left open in it"


def test_who_takes_over_the_server_gets_no_further(lab: Lab) -> None:
    assert lab.inside(lab.pod, sys.executable, "-c", PRISONER) == "done\n"


def planted(directory: Path, name: str, victim: Path) -> None:
    """A link to a file of root, in a directory that a local user came to own."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).symlink_to(victim)
    os.chown(directory / name, STRANGER, STRANGER, follow_symlinks=False)
    os.chown(directory, STRANGER, STRANGER)


@pytest.mark.parametrize("name", ["eth0.dnsmasq.log", "eth0.dnsmasq.pid", "eth0.dnsmasq.json", "eth0.nic.new"])
def test_planted_link_is_not_followed(lab: Lab, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "of-root"
    victim.write_text("secret")
    victim.chmod(0o600)
    planted(lab.state / lab.pod_uid, name, victim)
    report = lab.netsetup("setup", interface("masquerade"), check=False)
    assert "belongs to another user" in report["error"]["message"]
    found = victim.stat()
    assert (victim.read_text(), found.st_uid, stat.S_IMODE(found.st_mode)) == ("secret", 0, 0o600)
    assert lab.servers() == []


@pytest.mark.parametrize("name", ["eth0.dnsmasq.log", "eth0.dnsmasq.pid", "eth0.nic.new"])
def test_planted_link_in_a_directory_of_our_own_is_not_followed(lab: Lab, tmp_path: Path, name: str) -> None:
    """It was left open to everybody once."""
    victim = tmp_path / "of-root"
    victim.write_text("secret")
    victim.chmod(0o600)
    planted(lab.state / lab.pod_uid, name, victim)
    os.chown(lab.state / lab.pod_uid, 0, 0)
    (lab.state / lab.pod_uid).chmod(0o777)
    lab.netsetup("setup", interface("masquerade"))
    found = victim.stat()
    assert (victim.read_text(), found.st_uid, stat.S_IMODE(found.st_mode)) == ("secret", 0, 0o600)
    assert stat.S_IMODE((lab.state / lab.pod_uid).stat().st_mode) == 0o700


def test_directory_in_somebody_elses_hands_is_refused(lab: Lab) -> None:
    lab.state.mkdir(parents=True)
    os.chown(lab.state, STRANGER, STRANGER)
    report = lab.netsetup("setup", interface("masquerade"), check=False)
    assert "belongs to another user" in report["error"]["message"]


@pytest.mark.parametrize("umask", ["0000", "0022"])
def test_files_are_ours_alone_whatever_the_umask_says(lab: Lab, umask: str) -> None:
    request = json.dumps(lab.plan("setup", interface("masquerade")))
    run("sh", "-c", f'umask {umask}; exec "$@"', "sh", sys.executable, "-m", "virt_netsetup.main", input=request)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (lab.state, *lab.state.rglob("*"))}
    assert modes == {0o700, 0o600}
    assert {path.name for path in lab.state.rglob("*.*")} == {"eth0.nic.json", "eth0.dnsmasq.json"}
