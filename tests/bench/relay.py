"""How fast a machine's bytes get from node to node: through the way that virt-handler opens, and by a plain connection.

The two ends of the way are processes of their own, as on two nodes; who writes and who reads are two more. On a machine
of two processors all four share them, so the plain stream is also given beside one that is encrypted by OpenSSL alone.
Also on its own: `python -m tests.bench.relay`.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.rows import Row, show, times
from tests.framework.certs import CertAuthority
from virt_core.rpc.tls import TlsFiles
from virt_handler.moves.tunnel import Entrance, Exit

SIZE = 512 << 20
ROUNDS = 3
_PIECE = 1 << 20
_NAP_S = 0.005
_SOURCE, _TARGET = "node1.virt-handler.virtpod.internal", "node2.virt-handler.virtpod.internal"
_CHANNEL = "memory"
_FORK = multiprocessing.get_context("fork")


def certificates(folder: Path) -> dict[str, TlsFiles]:
    authority, found = CertAuthority(), {}
    for name in (_SOURCE, _TARGET):
        leaf = authority.issue("bench", name)
        (folder / name).mkdir()
        for file, data in (("tls.crt", leaf.cert), ("tls.key", leaf.key), ("ca.crt", authority.pem)):
            (folder / name / file).write_bytes(data)
        found[name] = TlsFiles(folder / name)
    return found


@contextmanager
def process(body: Callable[..., None], *args: Any) -> Iterator[int]:
    child = _FORK.Process(target=body, args=args, daemon=True)
    child.start()
    assert child.pid is not None
    try:
        yield child.pid
    finally:
        child.terminate()
        child.join(10)


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def listener(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    found.bind(str(path))
    found.listen(64)
    return found


def dial(path: Path) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    found.connect(str(path))
    return found


def leave(files: TlsFiles, near: socket.socket, port: int, told: Any) -> None:
    """The node that is left. Beside it a thread that does a little work now and then, as virt-handler's others do: it
    says, when asked, by how much it was late in one of a hundred cases."""
    Entrance(files.peer_context(server=False), "127.0.0.1", _TARGET, {_CHANNEL: near}, {_CHANNEL: port})
    late = []
    while not told.poll():
        due = time.monotonic() + _NAP_S
        time.sleep(_NAP_S)
        late.append(time.monotonic() - due)
    told.send(sorted(late)[len(late) * 99 // 100] * 1000)
    threading.Event().wait()


def arrive(files: TlsFiles, launcher: Path, told: Any) -> None:
    """The node that it moves to."""
    way = Exit(files.peer_context(server=True), "127.0.0.1", _SOURCE, {_CHANNEL: lambda: dial(launcher)})
    told.send(way.ports[_CHANNEL])
    threading.Event().wait()


def pour(connect: Callable[[], socket.socket], streams: int) -> None:
    """The guest's memory goes out, over so many connections at once."""
    data = memoryview(os.urandom(_PIECE))

    def one() -> None:
        with connect() as end:
            for _ in range(SIZE // streams // _PIECE):
                end.sendall(data)

    threads = [threading.Thread(target=one) for _ in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def drained(door: socket.socket, streams: int) -> float:
    """MiB a second, from the first byte to the last."""
    ends = [door.accept()[0] for _ in range(streams)]
    counts = [0] * streams

    def one(number: int) -> None:
        buffer = bytearray(_PIECE)
        with ends[number] as end:
            while size := end.recv_into(buffer):
                counts[number] += size

    threads = [threading.Thread(target=one, args=(number,)) for number in range(streams)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if sum(counts) != SIZE // streams // _PIECE * _PIECE * streams:
        raise RuntimeError(f"{sum(counts)} bytes came out of {SIZE}")
    return sum(counts) / (time.monotonic() - begun) / (1 << 20)


def direct(streams: int) -> float:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as door:
        port = door.getsockname()[1]
        with process(pour, lambda: socket.create_connection(("127.0.0.1", port)), streams):
            return drained(door, streams)


@dataclass(frozen=True, slots=True)
class Relayed:
    mib_s: float
    #: Processor seconds of both ends for each GiB.
    cost_s: float
    #: By how much other work of the same process is late, P99.
    late_ms: float


def relayed(streams: int) -> Relayed:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = certificates(folder)
        (here, there), (asked, asks) = _FORK.Pipe(), _FORK.Pipe()
        with (
            listener(folder / "near") as near,
            listener(folder / "launcher") as launcher,
            process(arrive, files[_TARGET], folder / "launcher", there) as target,
            process(leave, files[_SOURCE], near, here.recv(), asks) as source,
            process(pour, lambda: dial(folder / "near"), streams),
        ):
            rate = drained(launcher, streams)
            asked.send("how late?")
            return Relayed(rate, (cpu_s(target) + cpu_s(source)) * (1 << 30) / SIZE, asked.recv())


def rows() -> list[Row]:
    found = []
    for streams in (1, 8):
        ours, floor = [relayed(streams) for _ in range(ROUNDS)], max(direct(streams) for _ in range(ROUNDS))
        rate, cost, late = max(e.mib_s for e in ours), min(e.cost_s for e in ours), min(e.late_ms for e in ours)
        label = f"relay between nodes, encrypted, {streams} stream{'s' if streams > 1 else ''}"
        words = f"{rate:.0f} MiB/s, {cost:.2f} CPU s a GiB"
        found.append(Row(label, words, "", f"TCP {floor:.0f} MiB/s", times(rate, floor)))
        found.append(Row("  virt-handler's other threads are late meanwhile, P99", f"{late:.1f} ms", "< 20 ms"))
    return found


if __name__ == "__main__":
    show(rows())
