"""The health server stays up, and answers, whatever somebody does to its port."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from framework.waiting import eventually, no_leaked_threads, running

from virt_core.runtime import health
from virt_core.runtime.health import HealthServer

HALF = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "
MANY = 300


@pytest.fixture
def server() -> Iterator[HealthServer]:
    with no_leaked_threads():
        made = HealthServer("127.0.0.1:0")
        with running(made.run):
            yield made


def ask(server: HealthServer) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=10) as answer:
        return str(answer.read().decode())


def half_sent(server: HealthServer, stack: ExitStack, text: bytes = HALF) -> socket.socket:
    client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
    client.sendall(text)
    return client


def test_unfinished_requests_cost_a_bounded_number_of_threads(server: HealthServer) -> None:
    before = threading.active_count()
    with ExitStack() as stack:
        for _ in range(MANY):
            half_sent(server, stack)
        assert ask(server) == "ok\n"
        eventually(lambda: threading.active_count() <= before + health.MAX_CONNECTIONS)


def test_a_request_that_never_ends_is_hung_up(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep it alive."""
    monkeypatch.setattr(health, "REQUEST_S", 0.3)
    with ExitStack() as stack:
        slow = half_sent(server, stack)

        def hung_up() -> bool:
            try:
                slow.sendall(b"x")
            except OSError:
                return True
            return False

        eventually(hung_up, every_s=0.05)


def test_a_request_that_grows_without_end_is_hung_up(server: HealthServer) -> None:
    with ExitStack() as stack:
        large = half_sent(server, stack)
        with pytest.raises(OSError, match=r"."):
            large.sendall(b"y" * (64 << 20))
        assert ask(server) == "ok\n"
