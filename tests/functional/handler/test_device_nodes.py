"""Devices change hands in the launcher's container only: real device nodes in a mount namespace of their own."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from virt_handler.node.devices.units import Host
from virt_handler.pods import device_nodes

pytestmark = pytest.mark.root

HOST = Host("/")
TUN = "dev/net/tun"


@contextmanager
def container(script: str) -> Iterator[tuple[int, int]]:
    """A process with a /dev of its own, made by the script; its number and descriptor."""
    setup = f"set -e; mount -t tmpfs none /mnt; {script}; mount --move /mnt /dev; echo ready; exec sleep 60"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", setup]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            pidfd = os.pidfd_open(process.pid)
            try:
                yield process.pid, pidfd
            finally:
                os.close(pidfd)
        finally:
            process.kill()


def node(path: str, number: str) -> str:
    return f"mkdir -p $(dirname /mnt/{path}) && mknod -m 600 /mnt/{path} c {number}"


def owner(pid: int, path: str) -> tuple[int, int]:
    found = os.stat(f"/proc/{pid}/root/{path}")
    return found.st_uid, found.st_gid


def numbers(path: str) -> str:
    device = os.stat(path).st_rdev
    return f"{os.major(device)} {os.minor(device)}"


def test_launcher_gets_its_devices_and_nobody_the_nodes() -> None:
    before = os.stat("/dev/net/tun")
    with container(node("net/tun", numbers("/dev/net/tun"))) as (pid, pidfd):
        assert device_nodes.hand_over(pid, pidfd, HOST) == 1
        assert owner(pid, TUN) == (107, 107)
        assert stat.S_IMODE(os.stat(f"/proc/{pid}/root/{TUN}").st_mode) == 0o600
        assert device_nodes.hand_over(pid, pidfd, HOST) == 0
    after = os.stat("/dev/net/tun")
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


def test_another_device_under_a_known_name_stays_as_it_is() -> None:
    with container(node("net/tun", "1 1")) as (pid, pidfd):
        assert device_nodes.hand_over(pid, pidfd, HOST) == 0
        assert owner(pid, TUN) == (0, 0)


def test_file_under_a_known_name_stays_as_it_is() -> None:
    with container("mkdir /mnt/net && touch /mnt/net/tun /mnt/vfio") as (pid, pidfd):
        assert device_nodes.hand_over(pid, pidfd, HOST) == 0
        assert owner(pid, TUN) == (0, 0)


def test_the_nodes_own_device_is_never_given_away() -> None:
    """Some runtimes bind the node's device into the container instead of making one."""
    bind = "mkdir -p /mnt/net && touch /mnt/net/tun && mount --bind /dev/net/tun /mnt/net/tun"
    before = os.stat("/dev/net/tun")
    with container(bind) as (pid, pidfd):
        assert os.path.samestat(os.stat(f"/proc/{pid}/root/{TUN}"), before)
        assert device_nodes.hand_over(pid, pidfd, HOST) == 0
    assert os.stat("/dev/net/tun").st_uid == before.st_uid


@pytest.mark.parametrize(
    "script", ["mkdir /mnt/net && ln -s /etc/passwd /mnt/net/tun", "ln -s /etc /mnt/net", "ln -s /etc /mnt/vfio"]
)
def test_links_are_not_followed(script: str) -> None:
    with container(script) as (pid, pidfd):
        with pytest.raises(OSError, match="symbolic links") as refused:
            device_nodes.hand_over(pid, pidfd, HOST)
        assert refused.value.errno == errno.ELOOP
        assert "leads over a symbolic link" in device_nodes.explain(refused.value)


def test_devices_in_directories() -> None:
    """VFIO groups and USB devices, by their place: compared with the node's of the same name, here /dev/null's."""

    class Everything(Host):
        def device(self, path: str) -> os.stat_result | None:
            return os.stat("/dev/null")

    script = "; ".join(node(path, "1 3") for path in ("vfio/vfio", "vfio/12", "bus/usb/001/002"))
    with container(script) as (pid, pidfd):
        assert device_nodes.hand_over(pid, pidfd, Everything()) == 3
        assert owner(pid, "dev/bus/usb/001/002") == owner(pid, "dev/vfio/12") == (107, 107)


def test_process_that_shares_our_mounts_has_nothing_to_get() -> None:
    pidfd = os.pidfd_open(os.getpid())
    try:
        assert device_nodes.hand_over(os.getpid(), pidfd, HOST) == 0
    finally:
        os.close(pidfd)


def test_process_that_ended_has_nothing_to_get() -> None:
    with container("true") as (pid, _pidfd):
        pass
    assert device_nodes.hand_over(pid, -1, HOST) == 0


def test_a_volume_that_is_a_block_device() -> None:
    """The runtime made a node for it in the container; the launcher may open that, and nothing else called so."""
    made = "mknod -m 600 /mnt/data b 7 250; touch /mnt/file; mknod -m 600 /mnt/chars c 1 3"
    with container(made) as (pid, pidfd):
        wanted = ["data", "file", "chars", "none", "../etc", ""]
        assert device_nodes.hand_over(pid, pidfd, HOST, volumes=wanted) == 1
        assert owner(pid, "dev/data") == (107, 107)
        assert owner(pid, "dev/file") == owner(pid, "dev/chars") == (0, 0)


@pytest.mark.skipif(not os.path.exists("/dev/loop7"), reason="no loop devices here")
def test_a_block_device_of_the_node_is_never_given_away() -> None:
    before = os.stat("/dev/loop7")
    with container("touch /mnt/data && mount --bind /dev/loop7 /mnt/data") as (pid, pidfd):
        assert device_nodes.hand_over(pid, pidfd, HOST, volumes=["data"]) == 0
    assert os.stat("/dev/loop7").st_uid == before.st_uid
