"""An import beside `qemu-img convert` of the same image, for each format: how much longer, and how much memory at most.

Both read a file and write a file, in memory where there is room, so that no disk's mood is measured. The importer is
the whole program with the start of its interpreter, which is given beside it: a disk of real size hides it. Processor
time counts, for on a machine that others use the clock tells of them; the clock's ratio stands in brackets. What is
packed as a whole qemu-img cannot read: there the floor is to unpack it and then convert. Also on its own:
`python -m tests.bench.imports [FORMAT…]`.
"""

from __future__ import annotations

import atexit
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.bench.rows import Row, show

ROUNDS = 3
_SIZE = 1 << 30
_PART = 1 << 20
_SHARED = Path("/dev/shm")
_FORMATS: dict[str, tuple[str, ...]] = {
    "raw": ("-O", "raw", "-S", "0"),
    "qcow2": ("-O", "qcow2"),
    "qcow2, compressed": ("-c", "-O", "qcow2"),
    "qcow2, zstd": ("-c", "-O", "qcow2", "-o", "compression_type=zstd"),
    "vmdk": ("-O", "vmdk"),
    "vmdk for streams": ("-O", "vmdk", "-o", "subformat=streamOptimized"),
    "vdi": ("-O", "vdi"),
    "vhdx": ("-O", "vhdx"),
}
_PACKED: dict[str, tuple[str, ...]] = {"raw.gz": ("gzip", "-1"), "raw.xz": ("xz", "-0"), "raw.zst": ("zstd", "-1")}


#: What virt-importer does with an image that the node has mounted, elsewhere than in a container.
_IMPORT = """
import sys
from virt_core.apis import importplan
from virt_core.apis.importplan import ImportPlan
from virt_launcher.importer.main import attempt
from virt_launcher.importer.run import Places
claim, source, size = sys.argv[1:]
places = Places(directory=claim, source_directory=source, address=("127.0.0.1", 0))
report = attempt(ImportPlan(source=importplan.IMAGE, size=int(size)), places)
sys.exit(0 if report.reason == importplan.DONE else report.message)
"""


@dataclass(frozen=True, slots=True)
class Cost:
    seconds: float
    #: Of the processors.
    work: float
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


@cache
def _environment() -> dict[str, str]:
    """With bytecode, which our images have."""
    folder = tempfile.mkdtemp(prefix="virtpod-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": folder}


def cost_of(*commands: list[str]) -> Cost:
    """Of commands one after the other."""
    environment = _environment()
    start, work, largest = time.monotonic(), 0.0, 0
    for command in commands:
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
            _, code, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(code)
        if process.returncode:
            raise RuntimeError(f"{command} ended with {process.returncode}")
        work += used.ru_utime + used.ru_stime
        largest = max(largest, used.ru_maxrss)
    return Cost(time.monotonic() - start, work, largest)


def ours(image: Path, folder: Path) -> Cost:
    claim, source = folder / "claim", folder / "source" / "disk"
    claim.mkdir(exist_ok=True)
    source.mkdir(parents=True, exist_ok=True)
    (source / "image").unlink(missing_ok=True)
    os.link(image, source / "image")
    found = cost_of([sys.executable, "-c", _IMPORT, str(claim), str(source.parent), str(2 * _SIZE)])
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


def rows(wanted: Collection[str] = ()) -> list[Row]:
    """Of the formats that are wanted; of all, if none is."""
    with tempfile.TemporaryDirectory(dir=_roomy()) as name:
        folder = Path(name)
        make_disk(folder / "disk.raw")
        found = [each for what, options in _chosen(_FORMATS, wanted) for each in _format(what, options, folder)]
        return found + [each for what, tool in _chosen(_PACKED, wanted) for each in _packed(what, tool, folder)]


def _chosen(known: dict[str, tuple[str, ...]], wanted: Collection[str]) -> list[tuple[str, tuple[str, ...]]]:
    return [(what, options) for what, options in known.items() if not wanted or what in wanted]


def _roomy() -> Path | None:
    if not _SHARED.is_dir():
        return None
    there = os.statvfs(_SHARED)
    return _SHARED if there.f_bavail * there.f_frsize > 5 << 30 else None


def _format(what: str, options: tuple[str, ...], folder: Path) -> list[Row]:
    image, kind = folder / "image", options[options.index("-O") + 1]
    subprocess.run(["qemu-img", "convert", "-f", "raw", *options, folder / "disk.raw", image], check=True, timeout=300)
    found = compare(what, lambda: ours(image, folder), lambda: qemu_img(image, kind, folder))
    image.unlink()
    return found


def _packed(what: str, tool: tuple[str, ...], folder: Path) -> list[Row]:
    image = folder / "image"
    with image.open("wb") as out:
        subprocess.run([*tool, "-c", folder / "disk.raw"], check=True, stdout=out, timeout=600)
    found = compare(what, lambda: ours(image, folder), lambda: unpack_and_convert(image, tool[0], folder))
    image.unlink()
    return found


def compare(what: str, own: Callable[[], Cost], other: Callable[[], Cost]) -> list[Row]:
    """In turns, so that what else the machine does meets both."""
    own()  # Once for nothing: its bytecode is made.
    pairs = [(own(), other()) for _ in range(ROUNDS)]
    return _rows(what, _median([pair[0] for pair in pairs]), _median([pair[1] for pair in pairs]), start_up())


def _median(found: list[Cost]) -> Cost:
    seconds, work = (statistics.median(getattr(each, name) for each in found) for name in ("seconds", "work"))
    return Cost(seconds, work, max(each.kib for each in found))


def start_up() -> Cost:
    """An importer that has nothing to do."""
    command = [sys.executable, "-c", "import virt_launcher.importer.main"]
    return _median([cost_of(command) for _ in range(ROUNDS)])


def _rows(what: str, own: Cost, floor: Cost, start: Cost) -> list[Row]:
    net, clock = (own.work - start.work) / floor.work, own.seconds / floor.seconds
    return [
        Row(
            f"import, {what} / qemu-img convert",
            f"{own.work:.2f} s, {own.work - start.work:.2f} s without its start",
            "<= 1.2x",
            f"{floor.work:.2f} s",
            f"{own.work / floor.work:.2f}x, {net:.2f}x without its start ({clock:.2f}x by the clock)",
        ),
        Row("  its memory at most", f"{own.kib >> 10} MiB", "<= 100 MiB", f"{floor.kib >> 10} MiB", ""),
    ]


def main() -> None:
    show(rows(sys.argv[1:]))


if __name__ == "__main__":
    main()
