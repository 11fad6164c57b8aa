"""Volumes come into a launcher's Pod and go again: real mount namespaces, real cgroups, and a launcher that cheats."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from framework.waiting import eventually

from virt_handler.decisions.hotplug import Plugged
from virt_handler.node.devices.units import Host
from virt_handler.pods import device_cgroups, device_program
from virt_handler.pods.files import PodFiles, UnsafeFileError
from virt_handler.pods.plugging import NotThereError, Plugging

from .test_cgroups import hierarchy

pytestmark = pytest.mark.root

LAUNCHER, HOLDER = (str(uuid.uuid4()) for _ in range(2))
PRIVATE = "var/run/kubevirt-private"
#: No file behind it (the last of those that every kernel makes, so that nobody takes it), and still one that opens.
LOOP = os.makedev(7, 7)


@dataclass
class Process:
    """A process of a Pod, as virt-handler knows a launcher."""

    pid: int
    pidfd: int

    def sees(self, path: str) -> Path:
        return Path(f"/proc/{self.pid}/root/{PRIVATE}/hotplug-disks/{path}")


@contextmanager
def container(pod_uid: str, script: str) -> Iterator[Process]:
    """A process with a root of its own, made by the script in /mnt, in the cgroup of a Pod."""
    place = hierarchy()
    if place is None:
        pytest.skip("no writable cgroup hierarchy here")
    group = place / f"pod{pod_uid}"
    group.mkdir()
    setup = (
        f"set -e; echo $$ > {group}/cgroup.procs; mount -t tmpfs none /mnt; {script}; mkdir /mnt/old; cd /mnt;"
        " pivot_root . old; echo ready; read -r _"
    )
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", setup]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        pidfd = os.pidfd_open(process.pid)
        try:
            yield Process(process.pid, pidfd)
        finally:
            os.close(pidfd)
    finally:
        process.kill()
        process.communicate()
        eventually(lambda: not (group / "cgroup.procs").read_text(), within_s=10)
        group.rmdir()


@dataclass
class Lab:
    pods: Path
    claim: Path
    private: Path
    plugging: Plugging

    @contextmanager
    def launcher(self) -> Iterator[Process]:
        make = f"mkdir -p /mnt/{PRIVATE}; mount --bind {self.private} /mnt/{PRIVATE}"
        with container(LAUNCHER, make) as process:
            yield process

    @contextmanager
    def holder(self, extra: str = "true") -> Iterator[Process]:
        make = f"mkdir -p /mnt/hotplug/data /mnt/dev/hotplug; mount --bind {self.claim} /mnt/hotplug/data"
        with container(HOLDER, f"{make}; {extra}") as process:
            yield process


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    private = tmp_path / "pods" / LAUNCHER / "volumes/kubernetes.io~empty-dir/private"
    private.mkdir(parents=True)
    private.chmod(0o777)
    claim = tmp_path / "claim"
    claim.mkdir()
    (claim / "disk.img").write_text("bytes")
    files = PodFiles(str(tmp_path / "pods"))
    yield Lab(tmp_path / "pods", claim, private, Plugging(files, Host("/")))
    files.close()


DATA = Plugged("data", HOLDER)


def test_a_volume_comes_and_goes_and_a_restart_finds_it(lab: Lab) -> None:
    with lab.launcher() as launcher:
        with lab.holder():
            assert lab.plugging.mounted(LAUNCHER, launcher) == frozenset()
            lab.plugging.mount(LAUNCHER, launcher, DATA)
            lab.plugging.mount(LAUNCHER, launcher, DATA)
        # The Pod that brought it is gone; the machine goes on.
        assert launcher.sees("data/disk.img").read_text() == "bytes"
        assert not (lab.private / "hotplug-disks/data/disk.img").exists(), "the node itself does not see it"
        again = Plugging(PodFiles(str(lab.pods)), Host("/"))
        assert again.mounted(LAUNCHER, launcher) == frozenset({"data"})
        again.unmount(LAUNCHER, launcher, "data")
        assert again.mounted(LAUNCHER, launcher) == frozenset()
        assert not launcher.sees("data").exists()
        assert (lab.claim / "disk.img").read_text() == "bytes"


def test_a_pod_that_does_not_run_yet_is_waited_for(lab: Lab) -> None:
    with lab.launcher() as launcher, pytest.raises(NotThereError):
        lab.plugging.mount(LAUNCHER, launcher, DATA)


@pytest.mark.parametrize("trick", ["directory", "link"])
def test_a_place_that_the_launcher_made_is_not_used(lab: Lab, trick: str, tmp_path: Path) -> None:
    """It could exchange what is in there, or lead us to another Pod's files."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = lab.private / "hotplug-disks"
    if trick == "link":
        place.symlink_to(elsewhere)
    else:
        place.mkdir()
        os.chown(place, 107, 107)
    with lab.launcher() as launcher, lab.holder():
        with pytest.raises(OSError, match=r"not made by virt-handler|symbolic links") as failure:
            lab.plugging.mount(LAUNCHER, launcher, DATA)
        assert failure.type in (UnsafeFileError, OSError)
        assert list(elsewhere.iterdir()) == []
        assert not launcher.sees("data").exists()


def test_a_place_that_was_exchanged_is_seen(lab: Lab) -> None:
    """From the node the launcher's volume shows our directory; in its own namespace it put another over it."""
    make = (
        f"mkdir -p /mnt/{PRIVATE} /mnt/{PRIVATE}-own/hotplug-disks/data; mount --bind /mnt/{PRIVATE}-own /mnt/{PRIVATE}"
    )
    with container(LAUNCHER, make) as launcher, lab.holder():
        with pytest.raises(UnsafeFileError, match="not the directory that we made"):
            lab.plugging.mount(LAUNCHER, launcher, DATA)
        assert not launcher.sees("data/disk.img").exists()


def test_a_link_in_the_attachment_pod_is_not_followed(lab: Lab) -> None:
    with lab.launcher() as launcher, lab.holder("ln -s /hotplug/data /mnt/hotplug/link") as _:
        with pytest.raises(OSError, match="symbolic links"):
            lab.plugging.mount(LAUNCHER, launcher, Plugged("link", HOLDER))
        with pytest.raises(UnsafeFileError):
            lab.plugging.mount(LAUNCHER, launcher, Plugged("../data", HOLDER))


def opens(group: Path, path: Path) -> bool:
    """Whether a process in that cgroup may open a device."""
    script = f"echo $$ > {group}/cgroup.procs && exec dd if={path} count=0"
    return subprocess.run(["sh", "-c", script], capture_output=True, check=False).returncode == 0


@contextmanager
def cgroup(parent: str) -> Iterator[Path]:
    place = Path(parent)
    if not (place / "cgroup.procs").exists():
        pytest.skip(f"there is no {parent} here")
    group = place / f"virtpod-test-{os.getpid()}"
    group.mkdir()
    try:
        yield group
    finally:
        eventually(lambda: not (group / "cgroup.procs").read_text(), within_s=10)
        group.rmdir()


def test_a_block_device_may_be_used_as_long_as_it_is_there(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with cgroup("/sys/fs/cgroup/devices") as group, lab.launcher() as launcher:
        (group / "devices.deny").write_text("a")
        monkeypatch.setattr(device_cgroups, "_folder", lambda *_: group)
        with lab.holder("mknod -m 600 /mnt/dev/hotplug/raw b 7 7"):
            lab.plugging.mount(LAUNCHER, launcher, Plugged("raw", HOLDER, block=True))
        device = launcher.sees("raw")
        found = device.stat()
        assert (found.st_rdev, found.st_uid, found.st_gid) == (LOOP, 107, 107)
        assert opens(group, device)
        lab.plugging.unmount(LAUNCHER, launcher, "raw")
        assert not opens(group, Path("/dev/loop7"))
        assert lab.plugging.mounted(LAUNCHER, launcher) == frozenset()


def test_the_nodes_own_device_is_not_given_away(lab: Lab) -> None:
    """Some runtimes bind it instead of making one; its owner would change for everybody."""
    before = os.stat("/dev/loop7")
    bound = "touch /mnt/dev/hotplug/raw; mount --bind /dev/loop7 /mnt/dev/hotplug/raw"
    with lab.launcher() as launcher, lab.holder(bound), pytest.raises(UnsafeFileError, match="the node's own"):
        lab.plugging.mount(LAUNCHER, launcher, Plugged("raw", HOLDER, block=True))
    assert os.stat("/dev/loop7").st_uid == before.st_uid


def test_the_kernels_program_says_yes_to_one_more_device() -> None:
    """cgroups version 2: a runtime's program that allows nothing, before, with and after a question of ours."""
    deny_all = device_program._instruction(0xB7) + device_program._instruction(0x95)
    parent = next(
        (p for p in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if Path(p, "cgroup.controllers").exists()), ""
    )
    loop = Path("/dev/loop7")
    with cgroup(parent or "/none") as group:
        device_program.change(group, 7, 7, allowed=True)
        assert opens(group, loop), "without a program all is allowed"
        directory = os.open(group, os.O_RDONLY)
        program = device_program._load(deny_all)
        attach = device_program.struct.pack("<IIIII", directory, program, 6, 2, 0)
        device_program._bpf(device_program._PROG_ATTACH, attach)
        try:
            assert not opens(group, loop)
            device_program.change(group, 7, 7, allowed=True)
            device_program.change(group, 7, 6, allowed=True)
            device_program.change(group, 7, 6, allowed=True)
            assert opens(group, loop)
            assert not opens(group, Path("/dev/loop2"))
            device_program.change(group, 7, 7, allowed=False)
            assert not opens(group, loop)
            (number,) = device_program._attached(directory)
            held = device_program._bpf(device_program._GET_FD_BY_ID, device_program.struct.pack("<III", number, 0, 0))
            assert device_program.split(device_program._code(held)) == ({(7, 6)}, deny_all)
            os.close(held)
        finally:
            os.close(program)
            os.close(directory)
