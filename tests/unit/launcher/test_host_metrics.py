"""Figures of the node for the guest: well-formed, true, and cheap whatever the guest sends."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from framework.fake_hypervisor import FakeHypervisor
from framework.waiting import eventually

from virt_launcher.errors import UnavailableError
from virt_launcher.hostmetrics import disk, port
from virt_launcher.hostmetrics.document import DISK_BYTES, HOST, VM, Metric, to_xml
from virt_launcher.hostmetrics.figures import Figures

ASK = b"GET /metrics/XML\n\n"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A machine with two packages of two cores each."""
    files = {
        "proc/stat": "cpu  100 50 250 9999 0 0 0 0 0 0\ncpu0 1 1 1 1\n",
        "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 300 kB\nBuffers: 50 kB\nCached: 150 kB\nSwapCached: 10 kB\n"
        "SwapTotal: 400 kB\nSwapFree: 200 kB\nHugePages_Total: 0\n",
        "proc/vmstat": "nr_free_pages 75\npswpin 3\npswpout 5\n",
        **{f"sys/devices/system/cpu/cpu{n}/topology/physical_package_id": f"{n // 2}\n" for n in range(4)},
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


class Machine(FakeHypervisor):
    def stats(self) -> dict[str, object]:
        return {"vcpu.current": 2, "vcpu.0.time": 1_500_000_000, "vcpu.1.time": 500_000_000, "balloon.current": 65536}


def collected(node: Path) -> dict[tuple[str, str], object]:
    figures = Figures("node1", Machine("d"), node / "proc", node / "sys").collect()
    return {(each.context, each.name): each.value for each in figures}


def test_the_figures_are_those_of_the_node_and_of_this_machine(node: Path) -> None:
    found = collected(node)
    assert found[VM, "TotalCPUTime"] == 2.0
    assert found[VM, "ResourceProcessorLimit"] == 2
    assert found[VM, "PhysicalMemoryAllocatedToVirtualSystem"] == found[VM, "ResourceMemoryLimit"] == 65536
    assert found[HOST, "HostName"] == "node1"
    assert found[HOST, "VirtProductInfo"] == "qemu-7.2.22"
    assert found[HOST, "NumberOfPhysicalCPUs"] == 2
    assert found[HOST, "TotalCPUTime"] == 4.0
    assert (found[HOST, "FreePhysicalMemory"], found[HOST, "FreeVirtualMemory"]) == (300, 500)
    assert (found[HOST, "MemoryAllocatedToVirtualServers"], found[HOST, "UsedVirtualMemory"]) == (500, 890)
    assert (found[HOST, "PagedInMemory"], found[HOST, "PagedOutMemory"]) == (12, 20)


def test_text_stays_text_in_the_document() -> None:
    (metric,) = ET.fromstring(to_xml([Metric(HOST, "HostName", "</value><evil/>&")]))
    assert metric.findtext("value") == "</value><evil/>&"
    assert metric.attrib == {"type": "string", "context": "host"}


def read(path: Path) -> bytes:
    whole = path.read_bytes()
    signature, busy, checksum, length = struct.unpack(">4siii", whole[:16])
    text = whole[16 : 16 + length]
    assert (signature, busy, checksum, len(whole)) == (b"mvbd", 0, sum(text), DISK_BYTES)
    return text


def test_the_disk_is_whole_from_the_beginning_and_follows_the_figures(tmp_path: Path) -> None:
    path, figures = tmp_path / "new/vhostmd0", [Metric(VM, "TotalCPUTime", 1.5, "s")]
    assert disk.make_disk(path).read_only
    assert read(path) == b"<metrics>\n</metrics>\n"
    disk.DiskWriter(path, lambda: figures, threading.Event()).refresh()
    assert ET.fromstring(read(path)).findtext("metric/value") == "1.500000"
    assert disk.make_disk(path).path == str(path)
    assert len(ET.fromstring(read(path))) == 1


def test_figures_that_cannot_be_had_leave_the_disk_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "vhostmd0"
    disk.make_disk(path)

    def fails() -> list[Metric]:
        raise UnavailableError("no libvirt now")

    disk.DiskWriter(path, fails, threading.Event()).refresh()
    assert read(path) == b"<metrics>\n</metrics>\n"


def test_a_disk_never_holds_more_than_it_has_room_for(tmp_path: Path) -> None:
    path = tmp_path / "vhostmd0"
    disk.make_disk(path)
    disk.DiskWriter(path, lambda: [Metric(HOST, "HostName", "x" * DISK_BYTES)], threading.Event()).refresh()
    assert read(path) == b"<metrics>\n</metrics>\n"


@pytest.mark.parametrize(
    ("received", "request_", "kept"),
    [
        (b"", None, b""),
        (b"GET /met", None, b"GET /met"),
        (b"GET /metrics/XML\n", None, b"GET /metrics/XML\n"),
        (ASK, b"GET /metrics/XML", b""),
        (b"GET /metrics/XML\r\n\r\n", b"GET /metrics/XML", b""),
        (ASK * 1000, b"GET /metrics/XML", b""),
        (b"GET /metrics/XML\nx", b"", b""),
        (b"x" * (port.MAX_REQUEST + 1), b"", b""),
    ],
)
def test_little_is_kept_of_what_a_guest_sends(received: bytes, request_: bytes | None, kept: bytes) -> None:
    assert port.take(received) == (request_, kept)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, list[int]]]:
    """The guest's end, and how often figures were collected."""
    monkeypatch.setattr(port, "PAUSE_S", 0.01)
    ours, guest = socket.socketpair()
    guest.settimeout(10)
    counted: list[int] = []

    def collect() -> list[Metric]:
        counted.append(1)
        return [Metric(HOST, "HostName", "node1")]

    server = port.PortServer(Path(), collect, threading.Event())
    thread = threading.Thread(target=server.serve, args=(ours,), daemon=True)
    thread.start()
    yield guest, counted
    guest.close()
    thread.join(10)
    assert not thread.is_alive()
    ours.close()


def answer(guest: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\n\n"):
        found += guest.recv(65536)
    return found


def test_a_guest_that_asks_gets_the_document(asked: tuple[socket.socket, list[int]]) -> None:
    guest, _ = asked
    for piece in (b"GET /metr", b"ics/XML\n", b"\n"):
        guest.sendall(piece)
    assert ET.fromstring(answer(guest)).findtext("metric/value") == "node1"


def test_noise_costs_little_and_the_next_question_is_answered(asked: tuple[socket.socket, list[int]]) -> None:
    """CVE-2024-31420, CVE-2026-13322: no line end at all, nothing but line ends, zeros, questions by the thousand."""
    guest, counted = asked
    for noise in (b"A" * 100_000, b"\n" * 5000, b"\0" * 5000 + b"\n\n", ASK * 5000):
        guest.sendall(noise)
        answer(guest)
    assert eventually(lambda: _metrics(guest), within_s=20)
    assert len(counted) < 50


def _metrics(guest: socket.socket) -> bool:
    guest.sendall(ASK)
    return b"node1" in answer(guest)


def test_without_figures_the_guest_is_told_so() -> None:
    def fails() -> list[Metric]:
        raise OSError("no /proc")

    server = port.PortServer(Path(), fails, threading.Event())
    assert ET.fromstring(server._answer(b"GET /metrics/XML")).tag == "metrics"
    assert server._answer(b"GET /etc/passwd") == port.INVALID
