"""An importer with a directory of its own as its claim, and images as qemu-img makes them."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

from virt_core.apis import importplan
from virt_core.apis.importplan import ImportPlan, ImportReport
from virt_core.runtime.clock import SystemClock
from virt_launcher.importer.main import attempt
from virt_launcher.importer.run import Places

MIB = 1 << 20


class Hasty(SystemClock):
    """Pauses between attempts are nobody's matter here."""

    def sleep(self, seconds: float) -> None:
        del seconds


def import_from(claim: Path, url: str = "", device: str = "", **changes: Any) -> ImportReport:
    claim.mkdir(exist_ok=True)
    plan = ImportPlan(**{"source": importplan.HTTP, "size": 64 * MIB, "url": url, **changes})
    beside = claim.parent
    places = Places(
        directory=str(claim),
        device=device,
        credentials=beside / "credentials",
        certificates=beside / "certificates",
        secret_headers=beside / "headers",
        source_directory=str(beside / "source"),
        address=("127.0.0.1", 0),
        clock=Hasty(),
    )
    return attempt(plan, places)


def disk_bytes(size: int = 24 * MIB, seed: int = 7) -> bytes:
    """Islands of noise in a sea of zeros, with odd lengths, and something that packs well."""
    rng, disk = random.Random(seed), bytearray(size)
    for _ in range(24):
        at, length = rng.randrange(size), rng.randrange(1, 300_000)
        piece = rng.randbytes(length) if rng.random() < 0.6 else b"virtpod " * (length // 8)
        piece = piece[: size - at]
        disk[at : at + len(piece)] = piece
    return bytes(disk)


def qemu_img(*args: str | Path) -> None:
    subprocess.run(["qemu-img", *map(str, args)], check=True, capture_output=True, timeout=120)


def converted(directory: Path, raw: bytes, *options: str) -> bytes:
    """The disk in another format, as qemu-img writes it."""
    source, made = directory / "source.raw", directory / "made.img"
    source.write_bytes(raw)
    qemu_img("convert", "-f", "raw", *options, source, made)
    return made.read_bytes()


def disk_of(claim: Path) -> bytes:
    return (claim / "disk.img").read_bytes()
