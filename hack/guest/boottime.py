"""Boots what was built, once from the disk and once by kernel, and times the first line of the guest."""

from __future__ import annotations

import selectors
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

FIRST_LINE = b"virtpod guest: up"
DEADLINE_S = 60.0
MACHINE = [
    "qemu-system-x86_64",
    "-machine",
    "q35,accel=tcg",
    "-cpu",
    "max",
    "-m",
    "128",
    "-smp",
    "1",
    "-nodefaults",
    "-no-user-config",
    "-display",
    "none",
    "-no-reboot",
    "-serial",
    "stdio",
]


def measure(files: Path, arguments: str) -> dict[str, Any]:
    """Seconds from the start of QEMU to the first line, or nothing where there is no QEMU."""
    if shutil.which(MACHINE[0]) is None:
        return {}
    drive = f"file={files}/disk/disk.img,format=raw,if=virtio,snapshot=on"
    kernel = ["-kernel", f"{files}/boot/vmlinuz", "-initrd", f"{files}/boot/initrd.img", "-append", arguments]
    return {"diskBootSeconds": _first_line_s(["-drive", drive]), "kernelBootSeconds": _first_line_s(kernel)}


def sentence(report: dict[str, Any]) -> str:
    if "diskBootSeconds" not in report:
        return "not booted (no qemu-system-x86_64 here)"
    return f"first line after {report['diskBootSeconds']} s from disk, {report['kernelBootSeconds']} s by kernel"


def _first_line_s(arguments: list[str]) -> float:
    started = time.monotonic()
    process = subprocess.Popen([*MACHINE, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        _read_until(process, started + DEADLINE_S)
        return round(time.monotonic() - started, 2)
    finally:
        process.kill()
        process.wait()


def _read_until(process: subprocess.Popen[bytes], deadline: float) -> None:
    assert process.stdout is not None
    seen = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while FIRST_LINE not in seen:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"no line of the guest within {DEADLINE_S:.0f} s; the console said: {seen[-400:]!r}")
            chunk = process.stdout.read1(65536)  # type: ignore[attr-defined]
            if not chunk:
                raise OSError(f"QEMU ended before the guest's first line; the console said: {seen[-400:]!r}")
            seen += chunk
