"""A raw QEMU with the test guest in it: no libvirt, none of our programs. Tests talk to its console and its ports."""

from __future__ import annotations

import io
import json
import os
import selectors
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FILES = ROOT / ".build" / "guest.parts" / "files"
KERNEL_ARGUMENTS = "console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check random.trust_cpu=on"
BASE = "qemu-system-x86_64 -machine q35,accel=tcg -cpu max -m 128 -smp 1 -nodefaults -no-user-config -display none"


def disk_boot() -> list[str]:
    return ["-drive", f"file={FILES}/disk/disk.img,format=raw,if=virtio,snapshot=on"]


def kernel_boot(extra: str = "") -> list[str]:
    boot = FILES / "boot"
    return [
        "-kernel",
        str(boot / "vmlinuz"),
        "-initrd",
        str(boot / "initrd.img"),
        "-append",
        f"{KERNEL_ARGUMENTS} {extra}",
    ]


def user_network(*forwarded: int) -> tuple[list[str], dict[int, int]]:
    """QEMU's own NAT with the given guest ports forwarded: the arguments, and the host port of each guest port."""
    host_ports = {port: _free_port() for port in forwarded}
    rules = "".join(f",hostfwd=tcp:127.0.0.1:{host}-:{guest}" for guest, host in host_ports.items())
    return ["-netdev", f"user,id=net{rules}", "-device", "virtio-net-pci,netdev=net,romfile="], host_ports


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def no_cloud_iso(target: Path, files: dict[str, str], label: str = "cidata") -> Path:
    import pycdlib

    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=label)
    folders: set[str] = set()
    for number, (name, text) in enumerate(files.items()):
        iso_folder = _folders(iso, Path(name).parent, folders)
        data = text.encode()
        place: dict[str, Any] = {"rr_name": Path(name).name, "joliet_path": f"/{name}"}
        iso.add_fp(io.BytesIO(data), len(data), f"{iso_folder}/F{number}.;1", **place)
    iso.write(str(target))
    iso.close()
    return target


def _folders(iso: Any, folder: Path, made: set[str]) -> str:
    path = ""
    for part in folder.parts:
        joliet = f"{path.lower()}/{part}"
        path += f"/{part.upper()}"
        if path not in made:
            iso.add_directory(path, rr_name=part, joliet_path=joliet)
            made.add(path)
    return path


class Machine:
    """Use as a context manager: the process and its files go away at the end."""

    def __init__(self, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="guest-")
        self.monitor = f"{self._directory.name}/qmp"
        monitor = ["-serial", "stdio", "-qmp", f"unix:{self.monitor},server,nowait"]
        self._arguments = [*prefix, *BASE.split(), *monitor, *arguments]
        self.output = b""

    def __enter__(self) -> Machine:
        self.process = subprocess.Popen(
            self._arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.process.stdout, selectors.EVENT_READ)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(timeout=10)
        self._selector.close()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self._directory.cleanup()

    def wait_for(self, text: str, within_s: float = 60.0) -> None:
        """Reads the console until the text is there."""
        deadline = time.monotonic() + within_s
        while text.encode() not in self.output:
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"no {text!r} within {within_s} s; the console said:\n{self.text[-2000:]}")

    def shell(self, command: str, within_s: float = 20.0) -> str:
        """Runs a command on the guest's console and returns what it printed."""
        mark = str(time.monotonic_ns())
        assert self.process.stdin is not None
        # The marks are split, so that the echo of the command line does not count as output.
        self.process.stdin.write(f"echo be''gin-{mark}; {command}; echo en''d-{mark}\n".encode())
        self.process.stdin.flush()
        self.wait_for(f"end-{mark}", within_s)
        printed = self.text.replace("\r", "").split(f"begin-{mark}\n")[1]
        return printed.split(f"end-{mark}")[0].removesuffix("\n")

    def qmp(self, command: str) -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            connection.connect(self.monitor)
            stream = connection.makefile("rw")
            stream.readline()
            for name in ("qmp_capabilities", command):
                stream.write(json.dumps({"execute": name}) + "\n")
                stream.flush()
                answer: dict[str, Any] = json.loads(stream.readline())
            return answer

    @property
    def text(self) -> str:
        return self.output.decode(errors="replace")

    def _read(self, within_s: float) -> bool:
        if within_s <= 0 or not self._selector.select(within_s):
            return False
        assert self.process.stdout is not None
        chunk = self.process.stdout.read(65536)
        self.output += chunk or b""
        return bool(chunk)


def ask(port: int, line: str, host: str = "127.0.0.1") -> str:
    """Sends a line and returns the first one that comes back."""
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(line.encode() + b"\n")
        return connection.makefile().readline().rstrip("\n")
