"""The way of a machine between two nodes: its bytes arrive, and nobody else gets in."""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.framework.certs import CertAuthority
from tests.framework.waiting import eventually

from virt_core.apis import names
from virt_core.rpc.tls import TlsFiles
from virt_handler.moves import tunnel
from virt_handler.moves.far import Far
from virt_handler.moves.relay import relay
from virt_handler.moves.tunnel import Entrance, Exit

HERE, THERE = "node1.virt-handler.virtpod.internal", "node2.virt-handler.virtpod.internal"
CHANNEL = "memory"


class World:
    """Two nodes' certificates, a launcher that listens, and a way between."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca = CertAuthority()
        self.source, self.target = (self.files(name) for name in (HERE, THERE))
        self.launcher = self.listener("launcher")
        self.exit = Exit(self.target.peer_context(server=True), "127.0.0.1", HERE, {CHANNEL: self.connect})
        self.near = self.listener("near")
        self.entrance = self.enter(self.source)

    def enter(self, files: TlsFiles, peer: str = THERE) -> Entrance:
        return Entrance(
            files.peer_context(server=False),
            "127.0.0.1",
            peer,
            {CHANNEL: self.near},
            {CHANNEL: self.exit.ports[CHANNEL]},
        )

    def files(self, name: str, ca: CertAuthority | None = None) -> TlsFiles:
        leaf = (ca or self.ca).issue("x", name)
        directory = self.directory / f"{name}-{os.urandom(2).hex()}"
        directory.mkdir()
        for file, data in (("tls.crt", leaf.cert), ("tls.key", leaf.key), ("ca.crt", self.ca.pem)):
            (directory / file).write_bytes(data)
        return TlsFiles(directory)

    def listener(self, name: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.directory / name))
        listener.listen(64)
        listener.settimeout(5)
        return listener

    def connect(self) -> socket.socket:
        end = socket.socket(socket.AF_UNIX)
        end.connect(str(self.directory / "launcher"))
        return end

    def dial(self) -> socket.socket:
        end = socket.socket(socket.AF_UNIX)
        end.settimeout(10)
        end.connect(str(self.directory / "near"))
        return end

    def close(self) -> None:
        self.entrance.close()
        self.exit.close()
        self.launcher.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path)
    try:
        yield found
    finally:
        found.close()


def test_what_goes_in_comes_out_in_both_directions_at_once(world: World) -> None:
    data = os.urandom(3_000_000)
    with world.dial() as near:
        far, _ = world.launcher.accept()
        with far:
            received = {}

            def drain(name: str, end: socket.socket) -> None:
                digest = hashlib.sha256()
                left = len(data)
                while left and (part := end.recv(65536)):
                    digest.update(part)
                    left -= len(part)
                received[name] = digest.digest()

            readers = [threading.Thread(target=drain, args=each) for each in (("far", far), ("near", near))]
            writers = [threading.Thread(target=end.sendall, args=(data,)) for end in (near, far)]
            for thread in readers + writers:
                thread.start()
            for thread in readers + writers:
                thread.join(20)
    assert received == dict.fromkeys(("far", "near"), hashlib.sha256(data).digest())


def test_the_last_words_arrive_before_the_end(world: World) -> None:
    near = world.dial()
    far, _ = world.launcher.accept()
    far.settimeout(10)
    near.sendall(b"x" * 500_000)
    near.close()
    with far:
        total = 0
        while part := far.recv(65536):
            total += len(part)
    assert total == 500_000


class _Busy:
    """A socket that always has more, and always takes more."""

    def __init__(self) -> None:
        self.taken = 0

    def setblocking(self, _: bool) -> None: ...

    def recv_into(self, buffer: memoryview) -> int:
        return len(buffer)

    def send(self, data: memoryview) -> int:
        self.taken += len(data)
        return len(data)


class _BusyFar:
    def __init__(self) -> None:
        self.socket = _Busy()
        self.words = [memoryview(b"stop")]

    def seal(self, data: memoryview) -> bytes:
        return bytes(data)

    def receive(self) -> memoryview:
        if not self.words:
            raise BlockingIOError
        return self.words.pop()


def test_a_flood_one_way_leaves_the_other_way_open() -> None:
    near, far = _Busy(), _BusyFar()
    looks = iter(range(100))
    stop = SimpleNamespace(is_set=lambda: next(looks, None) is None)
    relay(cast(socket.socket, near), cast(Far, far), stop)
    assert near.taken == len(b"stop")
    assert far.socket.taken > 50 * near.taken


def test_its_ports_are_those_that_a_firewall_lets_through(world: World) -> None:
    assert world.exit.ports[CHANNEL] in names.MOVE_PORTS


def test_one_that_was_lost_on_the_way_does_not_hold_up_the_next(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other node was not reached for a while; who tries again comes through."""
    monkeypatch.setattr(tunnel, "_TURN_S", 0.1)
    with socket.create_connection(("127.0.0.1", world.exit.ports[CHANNEL]), timeout=5) as plain:
        far = Far(plain, world.source.peer_context(server=False), THERE)
        far.greet()
        far.say((3).to_bytes(4, "big"))
        came, _ = world.launcher.accept()
        came.close()


def test_they_come_out_in_the_order_in_which_they_went_in(world: World) -> None:
    near, far = [], []
    for number in range(20):
        near.append(world.dial())
        near[-1].sendall(bytes([number]))
    for _ in range(20):
        far.append(world.launcher.accept()[0])
        far[-1].settimeout(10)
    assert [end.recv(1)[0] for end in far] == list(range(20))
    for each in near + far:
        each.close()


def test_the_end_of_one_is_the_end_of_the_other(world: World) -> None:
    with world.dial() as near:
        far, _ = world.launcher.accept()
        far.close()
        assert near.recv(1) == b""


def test_a_closed_way_ends_what_is_under_way(world: World) -> None:
    with world.dial() as near:
        far, _ = world.launcher.accept()
        with far:
            far.settimeout(10)
            world.exit.close()
            assert far.recv(1) == b""
            assert near.recv(1) == b""


def refused(world: World, files: TlsFiles, name: str = THERE) -> bool:
    """Whether somebody with these certificates is turned away at the exit's port."""
    context = files.peer_context(server=False)
    try:
        plain = socket.create_connection(("127.0.0.1", world.exit.ports[CHANNEL]), timeout=5)
        with plain, context.wrap_socket(plain, server_hostname=name) as end:
            return end.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def test_another_node_is_not_let_in(world: World) -> None:
    assert refused(world, world.files("node3.virt-handler.virtpod.internal"))
    assert refused(world, world.files("virt-api.virtpod.internal"))
    assert refused(world, world.files(HERE, CertAuthority("another")))
    world.launcher.settimeout(0.0)
    with pytest.raises(BlockingIOError):
        world.launcher.accept()


def test_nobody_without_a_certificate_is_let_in(world: World) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        plain = socket.create_connection(("127.0.0.1", world.exit.ports[CHANNEL]), timeout=5)
        with plain, context.wrap_socket(plain) as end:
            assert end.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        pass


def test_the_machine_goes_to_no_other_node(world: World) -> None:
    world.entrance.close()
    world.near = world.listener("near2")
    wrong = world.enter(world.source, peer="node3.virt-handler.virtpod.internal")
    try:
        with socket.socket(socket.AF_UNIX) as near:
            near.settimeout(10)
            near.connect(str(world.directory / "near2"))
            assert near.recv(1) == b""
    finally:
        wrong.close()


def test_connections_are_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "MAX_CONNECTIONS", 2)
    few = Exit(world.target.peer_context(server=True), "127.0.0.1", HERE, {CHANNEL: world.connect})
    try:
        held = [socket.create_connection(("127.0.0.1", few.ports[CHANNEL]), timeout=5) for _ in range(2)]
        third = socket.create_connection(("127.0.0.1", few.ports[CHANNEL]), timeout=5)
        eventually(lambda: third.recv(1) == b"")
        for each in (*held, third):
            each.close()
    finally:
        few.close()
