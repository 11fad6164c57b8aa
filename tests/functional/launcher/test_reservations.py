"""The helper for SCSI reservations as a node runs it: who reaches it, what it does for them, and that QEMU finds it.

No SCSI disk is here, so what a reservation does to one is not seen. The socket, the helper behind it with the rights
that the chart leaves it, its protocol and QEMU's connection are the real ones.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from framework.chart import one
from framework.waiting import eventually

from virt_core.apis import names
from virt_launcher.reservations.serve import USER

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="the helper becomes another user")

_SYS_RAWIO = 1 << 17
_PERSISTENT_RESERVE_IN, _WRITE_10 = 0x5E, 0x2A
_CHECK_CONDITION = 2


def rights() -> str:
    """What the chart gives its container, as a bounding set."""
    on = "kubevirt: {configuration: {persistentReservationConfiguration: {enabled: true}}}"
    [container] = one("DaemonSet", "virt-reserve", on)["spec"]["template"]["spec"]["containers"]
    capabilities = container["securityContext"]["capabilities"]
    assert capabilities["drop"] == ["ALL"]
    return ",".join(["-all", *(f"+{name.lower()}" for name in capabilities["add"])])


@contextmanager
def helper(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = ["setpriv", f"--bounding-set={rights()}", "--inh-caps=-all", "--no-new-privs"]
    command += [sys.executable, "-m", "virt_launcher.reservations.serve", f"--directory={directory}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        eventually(lambda: _settled(process), within_s=20)
        yield process
    finally:
        process.kill()
        process.communicate()


def _settled(process: subprocess.Popen[bytes]) -> bool:
    """Has given up what it needs no more. One that has died fails the test at once, with its last words."""
    if process.poll() is not None:
        pytest.fail(f"the helper ended: {process.communicate()[1]!r}")
    return _caps(process.pid) == _SYS_RAWIO


def _caps(pid: int) -> int:
    found = re.search(r"CapPrm:\t([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1], 16)


def path_in(directory: Path) -> Path:
    return directory.joinpath(*Path(names.NODE_SOCKET_RESERVATIONS).parts[-2:])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    found = tmp_path / "reservations"
    found.mkdir(mode=0o777)
    return found


class Client:
    """A QEMU that speaks for itself: 16 bytes of a command, and the disk that it is about."""

    def __init__(self, path: Path) -> None:
        self.wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.wire.settimeout(10)
        self.wire.connect(str(path))
        self.wire.sendall(self.wire.recv(4))

    def ask(self, opcode: int, disk: int, size: int = 24) -> tuple[int, bytes] | None:
        """Status and sense; None when the helper hangs up."""
        command = struct.pack(">BxxxxxxHxxxxxxx", opcode, size)
        socket.send_fds(self.wire, [command], [disk])
        answer = b""
        while len(answer) < 104:
            more = self.wire.recv(104 - len(answer))
            if not more:
                return None
            answer += more
        status, _, sense = struct.unpack(">ii96s", answer)
        return status, sense


def test_the_helper_keeps_one_right_and_nobodys_name(directory: Path) -> None:
    with helper(directory) as process:
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert re.search(r"Uid:\t(\d+)\t(\d+)", status)[0] == f"Uid:\t{USER}\t{USER}"  # type: ignore[index]
        assert re.search(r"Groups:(.*)", status)[1].strip() in ("", str(USER))  # type: ignore[index]
        assert Path(f"/proc/{process.pid}/environ").read_bytes().count(b"=") == 2


def test_only_a_mount_leads_to_the_socket(directory: Path) -> None:
    with helper(directory):
        path = path_in(directory)
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_ISSOCK(path.stat().st_mode)
        connect = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        stranger = ["setpriv", "--reuid=1234", "--regid=1234", "--clear-groups", sys.executable, "-c", connect]
        refused = subprocess.run([*stranger, str(path)], capture_output=True, text=True, check=False)
        assert "PermissionError" in refused.stderr, refused.stderr
        # Who was given the directory, as the kubelet gives it to a launcher, comes through whoever they are.
        mounted = f'mount --bind -o ro "{path.parent}" /mnt && exec {" ".join(stranger[:4])} "$@"'
        script = ["unshare", "--mount", "sh", "-c", mounted, "sh", sys.executable, "-c", connect, f"/mnt/{path.name}"]
        subprocess.run(script, check=True, capture_output=True)


def test_it_answers_about_a_disk_that_is_none_and_lives(directory: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"0" * 512)
    with helper(directory) as process, file.open("r+b") as disk:
        client = Client(path_in(directory))
        for _ in range(3):
            answer = client.ask(_PERSISTENT_RESERVE_IN, disk.fileno())
            assert answer is not None
            assert answer[0] == _CHECK_CONDITION
        assert process.poll() is None


def test_it_does_nothing_but_reservations(directory: Path, tmp_path: Path) -> None:
    """A launcher that was taken over cannot have it write to a disk: it hangs up on that, and serves others."""
    file = tmp_path / "file"
    file.write_bytes(b"0" * 512)
    with helper(directory) as process, file.open("r+b") as disk:
        assert Client(path_in(directory)).ask(_WRITE_10, disk.fileno()) is None
        assert file.read_bytes() == b"0" * 512
        assert Client(path_in(directory)).ask(_PERSISTENT_RESERVE_IN, disk.fileno()) is not None
        assert process.poll() is None


class Qemu:
    def __init__(self, path: Path) -> None:
        manager = f"pr-manager-helper,id=pr-helper0,path={path}"
        command = ["qemu-system-x86_64", "-nodefaults", "-display", "none", "-machine", "none", "-qmp", "stdio"]
        self.process = subprocess.Popen(
            [*command, "-object", manager], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read()
        self.ask("qmp_capabilities")

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def ask(self, command: str, **arguments: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.process.stdin.flush()
        while "event" in (answer := self._read()):
            pass
        return answer["return"]

    def managers(self) -> dict[str, bool]:
        return {each["id"]: each["connected"] for each in self.ask("query-pr-managers")}

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_qemu_connects_and_a_helper_that_died_is_found_again(directory: Path) -> None:
    with helper(directory) as process:
        qemu = Qemu(path_in(directory))
        try:
            assert qemu.managers() == {"pr-helper0": True}
            process.send_signal(signal.SIGKILL)
            process.wait(10)
            with helper(directory):
                qemu.ask(
                    "object-add", **{"qom-type": "pr-manager-helper", "id": "later", "path": str(path_in(directory))}
                )
                assert qemu.managers()["later"] is True
                assert qemu.process.poll() is None
        finally:
            qemu.close()


def test_a_link_in_its_place_is_refused(directory: Path, tmp_path: Path) -> None:
    path_in(directory).parent.symlink_to(tmp_path)
    command = [sys.executable, "-m", "virt_launcher.reservations.serve", f"--directory={directory}"]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert said.returncode == 1
    assert "is not a directory" in said.stderr
