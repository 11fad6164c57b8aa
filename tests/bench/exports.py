"""`virtctl vmexport download` beside plain HTTP of the same bytes: by the external link, and over the API server.

Plain HTTP is Python's own server and client, one process each, so that no other language is measured. What is added to
it is TLS, the token, virt-api or the API server in between, the checksum of the disk, and probably above all gzip: a
disk travels packed in pieces that can be gone on with, also if it is written raw, and half of this one is noise.
Also on its own: `python -m tests.bench.exports [MiB]`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench import apiload
from tests.bench.rows import Row, show, times
from tests.bench.storage import EXPORTS, MIB, ROUNDS, filled_claim, gone, median, same, seconds_of, until
from tests.e2e.engine import BIN, Engine, VirtLocal, eventually, free_port

_SIZE = 512 * MIB
_CLAIM = _EXPORT = "bench-exported"
_FETCH = "import sys, shutil, urllib.request as u; shutil.copyfileobj(u.urlopen(sys.argv[1]), open(sys.argv[2], 'wb'))"
_WAYS: dict[str, tuple[str, ...]] = {
    "raw by the external link": ("--format", "raw"),
    "raw over the API server": ("--format", "raw", "--port-forward"),
    "raw by the external link, no checksum": ("--format", "raw", "--no-checksum"),
}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The URL of a directory."""
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1", "--directory", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        probe = [sys.executable, "-c", _FETCH, url, os.devnull]
        eventually(lambda: subprocess.run(probe, capture_output=True, check=False).returncode == 0, within_s=30)
        yield url
    finally:
        server.terminate()
        server.wait(10)


def plain(url: str, disk: Path, folder: Path) -> float:
    made = folder / "plain"
    found = seconds_of([sys.executable, "-c", _FETCH, f"{url}/{disk.name}", str(made)])
    same(disk, made)
    made.unlink()
    return found


def ours(engine: Engine, disk: Path, folder: Path, options: tuple[str, ...]) -> float:
    made = folder / "ours"
    command = [str(BIN / "virtctl"), "--kubeconfig", engine.kubeconfig, "vmexport", "download", _EXPORT]
    found = seconds_of([*command, "--output", str(made), *options])
    same(disk, made)
    made.unlink()
    return found


def rows(engine: Engine, size: int = _SIZE) -> list[Row]:
    client = apiload.client(engine.kubeconfig)
    disk = filled_claim(client, _CLAIM, size)
    source = {"apiGroup": "", "kind": "PersistentVolumeClaim", "name": _CLAIM}
    body = {"apiVersion": "export.kubevirt.io/v1", "kind": "VirtualMachineExport", "metadata": {"name": _EXPORT}}
    client.request("POST", EXPORTS, body | {"spec": {"source": source}})
    until(client, f"{EXPORTS}/{_EXPORT}", lambda found: found.get("status", {}).get("phase") == "Ready")
    try:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as name, served(disk.parent) as url:
            folder = Path(name)
            return [_row(engine, disk, folder, url, what, size) for what in _WAYS]
    finally:
        gone(engine, "vmexport", _EXPORT)
        gone(engine, "pvc", _CLAIM)


def _row(engine: Engine, disk: Path, folder: Path, url: str, what: str, size: int) -> Row:
    """In turns, so that what else the machine does meets both."""
    pairs = [(ours(engine, disk, folder, _WAYS[what]), plain(url, disk, folder)) for _ in range(ROUNDS)]
    own, floor = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
    return Row(
        f"vmexport download, {size // MIB} MiB {what} / plain HTTP",
        f"{own:.2f} s",
        "<= 2x",
        f"{floor:.2f} s",
        times(own, floor),
    )


def main() -> None:
    engine = VirtLocal()
    try:
        engine.start()
        show(rows(engine, int(sys.argv[1]) * MIB if len(sys.argv) > 1 else _SIZE))
    finally:
        engine.stop()


if __name__ == "__main__":
    main()
