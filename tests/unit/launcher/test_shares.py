"""Directories that the guest shares: the program that becomes virtiofsd, and the wait for its socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.cases import Case, context_of, vmi_of
from virt_launcher.convert.converter import convert
from virt_launcher.errors import InvalidVMIError, LauncherError
from virt_launcher.shares.mounted import objection
from virt_launcher.shares.serve import ShareError, command
from virt_launcher.shares.sockets import await_shares

ARGS = ["--socket", "/run/data.sock", "--directory", "/shared"]


def sharing(*tags: str, volumes: tuple[str, ...] = ("data",)) -> Case:
    return Case(
        domain={"devices": {"filesystems": [{"name": tag, "virtiofs": {}} for tag in tags]}},
        spec={"volumes": [{"name": name, "configMap": {"name": "c"}} for name in volumes]},
    )


def test_virtiofsd_gets_one_directory_and_one_socket() -> None:
    words = command(ARGS, "/usr/libexec/virtiofsd")
    assert words[:3] == ["/usr/libexec/virtiofsd", "--socket-path=/run/data.sock", "--shared-dir=/shared"]
    assert "--sandbox=none" in words
    assert not [word for word in words if word.startswith("--translate")]
    assert "--translate-uid=host:107:0:1" in command([*ARGS, "--as-root"], "virtiofsd")
    assert "--readonly" not in words
    assert "--readonly" in command([*ARGS, "--mounted"], "virtiofsd")


@pytest.mark.parametrize("argv", [[], ARGS[:2], [*ARGS, "--seccomp=none"], ["--socket", "x", "--directory", "/y"]])
def test_other_words_are_not_passed_on(argv: list[str]) -> None:
    with pytest.raises(ShareError, match="usage"):
        command(argv, "virtiofsd")


#: As the kernel tells it: the image, its programs, what it always has, the socket, and two volumes.
MOUNTS = """\
20 1 0:30 / / ro,relatime - overlay overlay rw
21 20 0:31 / /proc rw,nosuid - proc proc rw
22 20 0:32 / /dev rw,nosuid - tmpfs tmpfs rw
23 22 0:33 / /dev/shm rw - tmpfs shm rw
24 20 8:1 /usr /usr ro - ext4 /dev/sda1 rw
25 20 0:34 / /run/sockets rw - tmpfs tmpfs rw
26 20 0:35 / {volume} ro - tmpfs tmpfs rw
27 20 0:36 / {volume}/with\\040blank ro - tmpfs tmpfs rw
"""
OWN = ("/usr/bin/python3", "/usr/libexec/virtiofsd", "/run/sockets/x.sock")


@pytest.mark.parametrize(
    "path", ["/", "/etc", "/usr/share", "/proc/self/fdinfo", "/dev/shm", "/run/sockets", "/nowhere"]
)
def test_a_piece_of_the_image_is_not_shared(path: str, tmp_path: Path) -> None:
    assert objection(path, OWN, MOUNTS.format(volume=tmp_path)).startswith(f"no volume is mounted at {path}, ")


def test_what_is_mounted_is_shared_and_what_lies_in_it(tmp_path: Path) -> None:
    mounts = MOUNTS.format(volume=tmp_path)
    for name in ("inner", "with blank"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("/etc")
    assert [objection(f"{tmp_path}{inside}", OWN, mounts) for inside in ("", "/inner", "/with blank")] == [""] * 3
    assert objection(f"{tmp_path}/file", OWN, mounts).endswith("is not a directory")
    assert objection(f"{tmp_path}/link", OWN, mounts).startswith("no volume is mounted")


def test_it_says_so_instead_of_becoming_virtiofsd(tmp_path: Path) -> None:
    program = tmp_path / "virtiofsd"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)
    done = run(tmp_path, "--socket", "/run/x.sock", "--directory", "/proc/self", "--mounted")
    assert done.returncode == 1
    assert done.stderr.startswith("virt-share: no volume is mounted at /proc/self, ")


def run(path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from virt_launcher.shares import serve; serve._PLACES = (); sys.exit(serve.main())"
    env = {**os.environ, "PATH": str(path)}
    return subprocess.run([sys.executable, "-c", code, *args], env=env, capture_output=True, text=True, check=False)


def test_an_image_without_virtiofsd_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, *ARGS)
    assert done.returncode == 1
    assert done.stderr.startswith("virt-share: this image has no virtiofsd")


def test_it_becomes_virtiofsd(tmp_path: Path) -> None:
    """Process 1 of the container is virtiofsd itself: its end is the container's, with its exit code."""
    program = tmp_path / "virtiofsd"
    program.write_text('#!/bin/sh\necho "$@"; umask; exit 7\n')
    program.chmod(0o755)
    done = run(tmp_path, *ARGS)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (7, "0077")
    assert done.stdout.startswith("--socket-path=/run/data.sock --shared-dir=/shared --sandbox=none")


def test_a_socket_is_waited_for_and_named_when_it_does_not_come(tmp_path: Path) -> None:
    machine = vmi_of(sharing("data"))
    (tmp_path / "data.sock").touch()
    with pytest.raises(LauncherError, match=r"filesystems\[0\] \(data\): virtiofsd .* container is virtiofs-data"):
        await_shares(machine, str(tmp_path), 0.0)
    (tmp_path / "data.sock").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "data.sock"))
        await_shares(machine, str(tmp_path), 0.0)


@pytest.mark.parametrize(
    ("case", "field"),
    [
        (sharing("data", "gone"), "filesystems[1].name: there is no volume 'gone'"),
        (sharing("data", "data"), "filesystems[1].name: 'data' is the tag of another"),
        (sharing("t" * 37, volumes=("t" * 37,)), "filesystems[0].name: a tag has at most 36 bytes"),
    ],
)
def test_a_tag_that_cannot_be_had_is_named(case: Any, field: str) -> None:
    with pytest.raises(InvalidVMIError) as caught:
        convert(context_of(case))
    assert field in str(caught.value)
