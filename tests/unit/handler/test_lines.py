"""Who has which stream, what may be dialled, and what a launcher's answers may look like."""

from __future__ import annotations

import grpc
import pytest

from virt_core.rpc.status import RpcFailure
from virt_handler.service import answers
from virt_handler.streams.dial import pod_address
from virt_handler.streams.switchboard import USB_SLOTS, Switchboard
from virt_protos.launcher.v1 import launcher_pb2
from virt_protos.node.v1 import node_pb2 as pb

VNC, USB, TCP = pb.STREAM_KIND_VNC, pb.STREAM_KIND_USBREDIR, pb.STREAM_KIND_TCP


class FakeWire:
    def __init__(self) -> None:
        self.hung_up = self.closed = False

    def receive(self) -> bytes:
        return b""

    def send(self, data: bytes) -> None:
        pass

    def hang_up(self) -> None:
        self.hung_up = True

    def close(self) -> None:
        self.closed = True


def refused(board: Switchboard, kind: int, *, preserve: bool = False, vmi: str = "a") -> bool:
    try:
        board.claim(vmi, kind, preserve=preserve)
    except RpcFailure as failure:
        return failure.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    return False


def test_a_new_display_ends_the_one_before_unless_it_preserves_it() -> None:
    board, wire = Switchboard(), FakeWire()
    first = board.claim("a", VNC)
    board.connected(first, wire)
    assert refused(board, VNC, preserve=True)
    assert not wire.hung_up
    second = board.claim("a", VNC)
    assert wire.hung_up
    assert not board.release(first)
    assert board.release(second)
    assert not refused(board, VNC, preserve=True)


def test_who_was_overtaken_while_dialling_gets_nothing() -> None:
    board, wire = Switchboard(), FakeWire()
    slow = board.claim("a", VNC)
    board.claim("a", VNC)
    with pytest.raises(RpcFailure, match="taken over"):
        board.connected(slow, wire)
    assert wire.closed


def test_four_places_for_usb_each_its_own() -> None:
    board = Switchboard()
    lines = [board.claim("a", USB) for _ in range(USB_SLOTS)]
    assert [line.slot for line in lines] == [0, 1, 2, 3]
    assert refused(board, USB)
    assert not refused(board, USB, vmi="b")
    board.release(lines[2])
    assert board.claim("a", USB).slot == 2


def test_limits_of_a_machine_and_of_the_node() -> None:
    board = Switchboard(limit=5, per_pod=3)
    for _ in range(3):
        board.claim("a", TCP)
    assert refused(board, TCP)
    board.claim("b", TCP)
    board.claim("b", TCP)
    assert refused(board, TCP, vmi="c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.1.2.3", "10.1.2.3"), ("10.1.2.3/24", "10.1.2.3"), ("fd00::5/64", "fd00::5"), ("127.0.0.1", ""),
        ("0.0.0.0", ""), ("169.254.169.254", ""), ("fe80::1", ""), ("224.0.0.1", ""), ("::1", ""), ("nonsense", ""),
    ],
)  # fmt: skip
def test_only_addresses_of_pods_are_dialled(text: str, expected: str) -> None:
    assert pod_address(text) == expected


def test_answers_are_cut_to_size() -> None:
    user = launcher_pb2.GuestUser(name="\x1b[31m" + "u" * 999)
    (found,) = answers.users([user])
    assert len(found.name) <= 253
    assert "\x1b" not in found.name
    assert len(answers.users([user] * 1000)) == answers.MAX_ROWS
    filesystem = launcher_pb2.GuestFilesystem(disk_name="vda1", disks=[launcher_pb2.GuestFilesystemDisk()] * 99)
    assert len(answers.filesystems([filesystem])[0].disks) == answers.MAX_DISKS


def test_only_a_png_is_a_picture() -> None:
    png = b"\x89PNG\r\n\x1a\n..."
    assert answers.picture(png) == png
    for bad in (b"", b"<script>", png + b"x" * answers.MAX_PICTURE):
        with pytest.raises(RpcFailure):
            answers.picture(bad)
