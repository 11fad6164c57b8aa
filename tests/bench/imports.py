"""An import beside `qemu-img convert` of the same image, for each format: how much longer, and how much memory at most.

Both read a file and write a file, in memory, so that no disk's mood is measured; the importer is the whole program, from
the start of its interpreter to its report. What qemu-img cannot read at once (a packed file) is unpacked by its own tool
into a pipe's end first, as people do. Also on its own: `python -m tests.bench.imports`.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.rows import Row, show

ROUNDS = 3
_SIZE = 1 << 30
_PART = 1 << 20
_SHARED = Path("/dev/shm")
_FORMATS: dict[str, tuple[str, ...]] = {
    "raw": ("-O", "raw"),
    "qcow2": ("-O", "qcow2"),
    "qcow2, compressed": ("-c", "-O", "qcow2"),
    "qcow2, zstd": ("-c", "-O", "qcow2", "-o", "compression_type=zstd"),
    "vmdk": ("-O", "vmdk"),
    "vmdk for streams": ("-O", "vmdk", "-o", "subformat=streamOptimized"),
    "vdi": ("-O", "vdi"),
    "vhdx": ("-O", "vhdx"),
}
_PACKED: dict[str, tuple[str, ...]] = {"raw.gz": ("gzip", "-1"), "raw.xz": ("xz", "-0"), "raw.zst": ("zstd", "-1")}


@dataclass(frozen=True, slots=True)
class Cost:
    seconds: float
    #: At most, of the process that took the most.
    kib: int


def make_disk(path: Path) -> None:
    """Half of it is empty; of the rest three quarters pack well, as file systems do, and a quarter is noise."""
    rng = random.Random(1)
    words = [rng.randbytes(rng.randrange(4, 12)) for _ in range(2000)]
    text = b"".join(rng.choice(words) for _ in range(_PART // 6))[:_PART]
    with path.open("wb") as file:
        file.truncate(_SIZE)
        for part in range(0, _SIZE // _PART, 2):
            file.seek(part * _PART)
            turn = rng.randrange(len(text))
            file.write(rng.randbytes(_PART) if part % 8 == 0 else text[turn:] + text[:turn])


def cost_of(*commands: list[str]) -> Cost:
    """Of commands one after the other."""
    start, largest = time.monotonic(), 0
    for command in commands:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            _, code, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(code)
        if process.returncode:
            raise RuntimeError(f"{command} ended with {process.returncode}")
        largest = max(largest, used.ru_maxrss)
    return Cost(time.monotonic() - start, largest)


def median(measure: Callable[[], Cost]) -> Cost:
    found = [measure() for _ in range(ROUNDS)]
    return Cost(statistics.median(each.seconds for each in found), max(each.kib for each in found))


def ours(image: Path, folder: Path) -> Cost:
    claim = folder / "claim"
    claim.mkdir(exist_ok=True)
    found = cost_of([sys.executable, "-m", "tests.bench.imports", str(image), str(claim)])
    _same(folder / "disk.raw", claim / "disk.img")
    (claim / "disk.img").unlink()
    return found


def qemu_img(image: Path, kind: str, folder: Path) -> Cost:
    made = folder / "made.raw"
    found = cost_of(["qemu-img", "convert", "-f", kind, "-O", "raw", str(image), str(made)])
    made.unlink()
    return found


def unpack_and_convert(image: Path, tool: str, folder: Path) -> Cost:
    plain, made = folder / "plain.raw", folder / "made.raw"
    found = cost_of(
        ["sh", "-c", f"{tool} -dc '{image}' > '{plain}'"],
        ["qemu-img", "convert", "-f", "raw", "-O", "raw", str(plain), str(made)],
    )
    plain.unlink()
    made.unlink()
    return found


def _same(wanted: Path, found: Path) -> None:
    """A fast import of something else would be no import."""
    subprocess.run(["cmp", "--quiet", str(wanted), str(found)], check=True, timeout=60)


def rows() -> list[Row]:
    room = (
        _SHARED if _SHARED.is_dir() and os.statvfs(_SHARED).f_bavail * os.statvfs(_SHARED).f_frsize > 5 << 30 else None
    )
    with tempfile.TemporaryDirectory(dir=room) as name:
        folder = Path(name)
        make_disk(folder / "disk.raw")
        found = []
        for what, options in _FORMATS.items():
            image = folder / "image"
            subprocess.run(["qemu-img", "convert", "-f", "raw", *options, folder / "disk.raw", image], check=True)
            kind = options[options.index("-O") + 1]
            found += _rows(what, median(lambda: ours(image, folder)), median(lambda: qemu_img(image, kind, folder)))
            image.unlink()
        for what, tool in _PACKED.items():
            image = folder / "image"
            with image.open("wb") as out:
                subprocess.run([*tool, "-c", folder / "disk.raw"], check=True, stdout=out)
            floor = median(lambda: unpack_and_convert(image, tool[0], folder))
            found += _rows(what, median(lambda: ours(image, folder)), floor)
            image.unlink()
    return found


def _rows(what: str, own: Cost, floor: Cost) -> list[Row]:
    return [
        Row(
            f"import of a 1 GiB disk, {what} / qemu-img convert",
            f"{own.seconds:.2f} s",
            "<= 1.2x",
            f"{floor.seconds:.2f} s",
            f"{own.seconds / floor.seconds:.2f}x",
        ),
        Row("  its memory at most", f"{own.kib >> 10} MiB", "<= 100 MiB", f"{floor.kib >> 10} MiB", ""),
    ]


def import_here(image: Path, claim: Path) -> None:
    """In a process of its own: what virt-importer does with an image that the node has mounted."""
    from virt_core.apis import importplan
    from virt_core.apis.importplan import ImportPlan
    from virt_launcher.importer.main import attempt
    from virt_launcher.importer.run import Places

    source = Path(tempfile.mkdtemp(dir=claim.parent)) / "disk"
    source.mkdir()
    os.link(image, source / "image")
    try:
        places = Places(directory=str(claim), source_directory=str(source.parent), address=("127.0.0.1", 0))
        report = attempt(ImportPlan(source=importplan.IMAGE, size=2 * _SIZE), places)
    finally:
        (source / "image").unlink()
        source.rmdir()
        source.parent.rmdir()
    if report.reason != importplan.DONE:
        raise SystemExit(f"{report.reason}: {report.message}")


def main() -> None:
    if len(sys.argv) == 3:
        import_here(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        show(rows())


if __name__ == "__main__":
    main()
