"""`virtctl vmexport download` with a real exporter, over a line that breaks: each byte arrives, once."""

from __future__ import annotations

import gzip
import io
import json
import random
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest

from virt_core.apis.export import VirtualMachineExportLink
from virt_core.apis.exportplan import PIECE, ExportVolume
from virtctl.vmexport import download as module
from virtctl.vmexport.download import Job, download
from virtctl.vmexport.parts import FileTarget, PipeTarget
from virtctl.vmexport.way import Way

from .rig import TOKEN, Exporter, exporting

SIZE = 3 * PIECE + 777


def noisy(seed: int) -> bytes:
    """3 MiB of noise in each piece, so that it is known in which one a line breaks."""
    rng, disk = random.Random(seed), bytearray(SIZE)
    for at in range(0, SIZE - PIECE, PIECE):
        disk[at + 5 : at + 5 + (3 << 20)] = rng.randbytes(3 << 20)
    return bytes(disk)


DISK = noisy(11)
URL = "https://localhost/volumes/root/disk.img.gz"


@dataclass
class Line:
    """The way to the exporter; `cut` says after how many bytes each of the next connections ends."""

    exporter: Exporter
    cut: list[int] = field(default_factory=list)
    dialled: int = 0

    def dial(self, _host: str, _port: int) -> socket.socket:
        self.dialled += 1
        real = socket.create_connection(("127.0.0.1", self.exporter.port), 20)
        return Cut(real, self.cut.pop(0)) if self.cut else real

    def job(self, *, unpack: bool = True, retries: int = 3, url: str = URL) -> Job:
        way = Way(VirtualMachineExportLink(cert=self.exporter.ca), self.dial, False, "a line")
        return Job(way, TOKEN, url, unpack, retries, again=lambda: way)


class Cut(socket.socket):
    """Ends after so many bytes from the other side."""

    def __init__(self, real: socket.socket, left: int) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(fileno=ours.detach())
        import threading

        def carry(source: socket.socket, target: socket.socket, limit: float) -> None:
            try:
                while limit > 0 and (data := source.recv(1 << 16)):
                    target.sendall(data)
                    limit -= len(data)
            except OSError:
                pass
            for each in (source, target):
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

        threading.Thread(target=carry, args=(theirs, real, float("inf")), daemon=True).start()
        threading.Thread(target=carry, args=(real, theirs, float(left)), daemon=True).start()


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    claim = tmp_path / "claim"
    claim.mkdir()
    (claim / "disk.img").write_bytes(DISK)
    return claim


@pytest.fixture
def line(tmp_path: Path, claim: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    with exporting(tmp_path, ExportVolume(name="root", path=str(claim))) as exporter:
        yield Line(exporter)


@pytest.mark.parametrize("unpack", [True, False])
def test_a_line_that_breaks_twice(line: Line, tmp_path: Path, unpack: bool) -> None:
    line.cut = [4 << 20, 4 << 20]
    output = tmp_path / "out"
    download(line.job(unpack=unpack), FileTarget(output, sparse=unpack))
    found = output.read_bytes()
    assert (found if unpack else gzip.decompress(found)) == DISK
    assert line.dialled >= 4, "two that broke, one that ended, and the checksum"
    assert [each.name for each in tmp_path.glob("out.*")] == []


@pytest.mark.parametrize("unpack", [True, False])
def test_another_run_goes_on_where_the_first_one_was(line: Line, tmp_path: Path, unpack: bool) -> None:
    output = tmp_path / "out"
    line.cut = [4 << 20]
    with pytest.raises(click.ClickException, match="run it again to go on"):
        download(line.job(unpack=unpack, retries=0), FileTarget(output, sparse=unpack))
    assert not output.exists()
    assert json.loads((tmp_path / "out.part.state").read_text())["pieces"] > 0
    download(line.job(unpack=unpack), FileTarget(output, sparse=unpack))
    found = output.read_bytes()
    assert (found if unpack else gzip.decompress(found)) == DISK


def test_standard_output_gets_each_byte_once(line: Line) -> None:
    line.cut = [4 << 20]
    said = io.BytesIO()
    download(line.job(), PipeTarget(said))
    assert said.getvalue() == DISK


def test_a_disk_that_changed_meanwhile_begins_anew(line: Line, tmp_path: Path, claim: Path) -> None:
    output = tmp_path / "out"
    line.cut = [4 << 20]
    with pytest.raises(click.ClickException):
        download(line.job(retries=0), FileTarget(output, sparse=True))
    other = noisy(12)
    (claim / "disk.img").write_bytes(other)
    download(line.job(), FileTarget(output, sparse=True))
    assert output.read_bytes() == other


def test_what_has_another_checksum_is_not_kept(line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_right", lambda *_: False)
    with pytest.raises(click.ClickException, match="not kept"):
        download(line.job(), FileTarget(tmp_path / "out", sparse=True))
    assert list(tmp_path.glob("out*")) == []


def test_a_half_made_file_of_something_else_is_not_gone_on_with(line: Line, tmp_path: Path) -> None:
    (tmp_path / "out.part").write_bytes(b"x" * (2 * PIECE))
    state = {"pieces": 1, "url": URL, "tag": '"of another disk"', "length": PIECE}
    (tmp_path / "out.part.state").write_text(json.dumps(state))
    download(line.job(), FileTarget(tmp_path / "out", sparse=True))
    assert (tmp_path / "out").read_bytes() == DISK
    lies: list[Callable[[], str]] = [lambda: "[]", lambda: "{", lambda: json.dumps({"length": 1 << 60})]
    for lie in lies:
        (tmp_path / "out.part.state").write_text(lie())
        download(line.job(), FileTarget(tmp_path / "out", sparse=True))
        assert (tmp_path / "out").read_bytes() == DISK


def test_the_certificate_counts_on_every_way(line: Line, tmp_path: Path) -> None:
    job = line.job(retries=0)
    way = Way(VirtualMachineExportLink(cert=""), line.dial, False, "a line")
    stranger = Job(way, TOKEN, URL, True, 0, again=lambda: way)
    with pytest.raises(click.ClickException, match="certificate"):
        download(stranger, FileTarget(tmp_path / "out"))
    assert job.token == TOKEN


def test_a_refusal_is_told_and_not_tried_again(line: Line, tmp_path: Path) -> None:
    job = Job(line.job().way, "wrong", URL, True, 5, again=line.job().again)
    with pytest.raises(click.ClickException, match="401"):
        download(job, FileTarget(tmp_path / "out"))
    assert line.dialled == 1
