"""The gate lets in whom it should, as many and as fast as it should, and outlives what goes wrong at one door."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from framework.waiting import eventually, running

from virt_core.runtime.clock import FakeClock
from virt_handler.pods.gate import Admits, Gate, Limits
from virt_handler.pods.peers import is_of_pod
from virt_handler.pods.sockets import make_listener

WAIT_S = 5.0
LIMITS = Limits(connections=2, connect_burst=8, bytes_burst=1000, bytes_per_second=100, idle_s=60.0)


class Rig:
    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root, self.stack, self.clock = root, stack, FakeClock()
        self.admitted = True
        self.gate = Gate(str(root / "inner"), self.clock, LIMITS)
        stack.callback(os.close, self.gate.directory)
        self.behind = self._socket()
        self.behind.bind(str(root / "inner" / "one"))
        self.behind.listen()
        self.door = self.open("door", lambda _peer: self.admitted)

    def open(self, name: str, admits: Admits) -> object:
        directory = os.open(self.root, os.O_PATH | os.O_DIRECTORY)
        try:
            return self.gate.open(make_listener(directory, name), "one", admits)
        finally:
            os.close(directory)

    def _socket(self) -> socket.socket:
        made = self.stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        made.settimeout(WAIT_S)
        return made

    def client(self, name: str = "door") -> socket.socket:
        client = self._socket()
        client.connect(str(self.root / name))
        return client

    def server(self) -> socket.socket:
        """Our end of the connection that the gate makes for a client."""
        accepted = self.stack.enter_context(self.behind.accept()[0])
        accepted.settimeout(WAIT_S)
        return accepted


@contextmanager
def opened(root: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        rig = Rig(root, stack)
        with running(rig.gate.run):
            yield rig
            rig.gate.close(rig.door)  # type: ignore[arg-type]
            rig.gate.stop()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with opened(tmp_path) as made:
        yield made


def received(end: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        data += end.recv(count - len(data))
    return data


def test_bytes_go_both_ways_and_an_end_is_passed_on(rig: Rig) -> None:
    client = rig.client()
    server = rig.server()
    client.sendall(b"question")
    assert received(server, 8) == b"question"
    server.sendall(b"x" * 300_000)
    assert received(client, 300_000) == b"x" * 300_000
    server.close()
    assert client.recv(1) == b""


def test_more_connections_wait_outside_until_one_ends(rig: Rig) -> None:
    first, _second, third = (rig.client() for _ in range(3))
    servers = [rig.server() for _ in range(2)]
    third.sendall(b"me too")
    rig.behind.setblocking(False)
    with pytest.raises(BlockingIOError):
        rig.behind.accept()
    rig.behind.settimeout(WAIT_S)
    first.close()
    assert servers[0].recv(1) == b""
    assert received(rig.server(), 6) == b"me too"


def test_who_connects_too_often_waits(rig: Rig) -> None:
    for _ in range(LIMITS.connect_burst):
        client = rig.client()
        rig.server()
        client.close()
    late = rig.client()
    late.sendall(b"late")
    rig.behind.setblocking(False)
    with pytest.raises(BlockingIOError):
        rig.behind.accept()
    rig.behind.settimeout(WAIT_S)
    rig.clock.step(1.0)
    assert received(rig.server(), 4) == b"late"


def test_who_says_nothing_for_long_is_let_go(rig: Rig) -> None:
    client = rig.client()
    server = rig.server()
    client.sendall(b"hi")
    assert received(server, 2) == b"hi"  # Only now the gate knows since when it is silent.
    rig.clock.step(LIMITS.idle_s)
    assert client.recv(1) == b""
    assert server.recv(1) == b""


def test_who_sends_too_much_is_read_more_slowly(rig: Rig) -> None:
    client = rig.client()
    server = rig.server()
    client.sendall(b"x" * 5000)
    received(server, LIMITS.bytes_burst)
    server.setblocking(False)
    with pytest.raises(BlockingIOError):
        server.recv(1)
    server.settimeout(WAIT_S)
    rig.clock.step(2.0)
    received(server, 2 * int(LIMITS.bytes_per_second))
    server.setblocking(False)
    with pytest.raises(BlockingIOError):
        server.recv(1)


def test_strangers_are_turned_away_and_the_next_one_is_served(rig: Rig) -> None:
    rig.admitted = False
    assert rig.client().recv(1) == b""
    rig.admitted = True
    rig.client().sendall(b"mine")
    assert received(rig.server(), 4) == b"mine"


def test_a_door_that_fails_leaves_the_others_alone(rig: Rig) -> None:
    def fails(_peer: socket.socket) -> bool:
        raise ValueError("of whatever kind")

    bad = rig.open("bad", fails)
    assert rig.client("bad").recv(1) == b""
    rig.client().sendall(b"fine")
    assert received(rig.server(), 4) == b"fine"
    rig.gate.close(bad)  # type: ignore[arg-type]


def test_nothing_is_left_open(rig: Rig) -> None:
    before = len(os.listdir("/proc/self/fd"))
    client = rig.client()
    server = rig.server()
    client.close()
    assert server.recv(1) == b""
    server.close()
    # Fewer, when something of another test is thrown away just now.
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)


def test_peer_is_known_by_the_process_that_connected(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        asked: list[int] = []

        def pod_of(pid: int) -> str:
            asked.append(pid)
            return "pod-a"

        assert is_of_pod(ours, "pod-a", pod_of)
        assert not is_of_pod(ours, "pod-b", pod_of)
        assert asked == [os.getpid()] * 2


def test_peer_that_has_ended_is_nobodys(tmp_path: Path) -> None:
    """Its number may be another's by now; its connection may live on in a third process."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        child = os.fork()
        if child == 0:
            client = socket.socket(socket.AF_UNIX)
            client.connect(str(tmp_path / "s"))
            os._exit(0)
        os.waitpid(child, 0)
        with listener.accept()[0] as connection:
            assert not is_of_pod(connection, "pod-a", lambda _pid: "pod-a")


def test_socket_in_a_pods_volume_replaces_what_is_there(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("as it was")
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "s").symlink_to(precious)
    (volume / ".s").symlink_to(precious)
    directory = os.open(volume, os.O_PATH | os.O_DIRECTORY)
    try:
        make_listener(directory, "s").close()
        assert (volume / "s").is_socket()
        assert (volume / "s").lstat().st_mode & 0o007 == 0
        (volume / "s").unlink()
        (volume / "s").mkdir()
        with pytest.raises(IsADirectoryError):
            make_listener(directory, "s")
    finally:
        os.close(directory)
    assert precious.read_text() == "as it was"
