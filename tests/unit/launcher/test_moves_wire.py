"""libvirt's connection to the other side: what it learns of the end of the way on, and when."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.framework.waiting import eventually
from virt_launcher.moves.wire import Wire

_PATIENCE_S = 10.0


class Ends:
    """The wire, libvirt's end of it and that of the other side."""

    def __init__(self, directory: Path, far: socket.socket) -> None:
        self.still = threading.Event()
        self.told: list[bool] = []
        self.wire = Wire(
            str(directory / "near"), str(directory / "far"), self.still.is_set, lambda: self.told.append(self.wire.held)
        )
        self.wire.open()
        self.libvirt = socket.socket(socket.AF_UNIX)
        self.libvirt.settimeout(_PATIENCE_S)
        self.libvirt.connect(str(directory / "near"))
        self.other, _ = far.accept()
        self.other.settimeout(_PATIENCE_S)

    def close(self) -> None:
        self.libvirt.close()
        self.other.close()
        self.wire.close()


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.settimeout(_PATIENCE_S)
        listener.bind(str(path))
        listener.listen(1)
        yield listener


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    with listening(tmp_path / "far") as far, closing(Ends(tmp_path, far)) as found:
        yield found


def test_bytes_go_both_ways(ends: Ends) -> None:
    ends.libvirt.sendall(b"may it run there?")
    assert ends.other.recv(100) == b"may it run there?"
    ends.other.sendall(b"yes")
    assert ends.libvirt.recv(100) == b"yes"


def test_the_loss_of_the_way_is_passed_on_while_the_guest_runs(ends: Ends) -> None:
    ends.other.close()
    assert ends.libvirt.recv(100) == b""
    assert ends.told == []


def test_the_loss_is_kept_from_libvirt_while_the_guest_stands_still(ends: Ends) -> None:
    ends.still.set()
    ends.other.close()
    eventually(lambda: ends.wire.held)
    ends.libvirt.setblocking(False)
    with pytest.raises(BlockingIOError):
        ends.libvirt.recv(100)
    ends.libvirt.settimeout(_PATIENCE_S)
    ends.wire.settle()
    assert ends.libvirt.recv(100) == b""
    eventually(lambda: ends.told == [True, False])


def test_a_leave_is_no_loss_whoever_hangs_up_first(ends: Ends) -> None:
    """The machine is gone, so it does not run here. libvirt says good-bye, and the far side closes first."""
    ends.still.set()
    ends.libvirt.sendall(b"good-bye")
    assert ends.other.recv(100) == b"good-bye"
    ends.other.close()
    ends.libvirt.shutdown(socket.SHUT_WR)
    assert ends.libvirt.recv(100) == b""
    assert ends.told == []
