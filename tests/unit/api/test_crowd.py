"""Who has to go when the port is full."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from virt_api.serving.connection import Connection, State
from virt_api.serving.crowd import Crowd, Rank
from virt_api.serving.limits import Limits

LIMITS = Limits(connections=6, per_address=4, held_bytes=100, header_bytes=50)


@dataclass(eq=False)
class Visitor:
    address: str
    since: float = 0.0
    rank: Rank = Rank.STRANGER
    deadline: float = 10.0
    held: int = 0
    busy: bool = False
    out: bool = field(default=False)

    def is_waiting(self) -> bool:
        return not self.busy

    def show_out(self) -> None:
        self.out = True


def crowd_of(*visitors: Visitor) -> Crowd:
    crowd = Crowd(LIMITS)
    for visitor in visitors:
        crowd.add(visitor)
    return crowd


def out(*visitors: Visitor) -> list[int]:
    return [index for index, visitor in enumerate(visitors) if visitor.out]


def test_the_oldest_stranger_of_a_full_address_goes() -> None:
    visitors = [Visitor("a", since) for since in (3.0, 1.0, 2.0)]
    known = Visitor("a", 0.0, Rank.KNOWN)
    crowd = crowd_of(*visitors, known)
    assert crowd.make_room("b")
    assert out(*visitors, known) == []
    assert crowd.make_room("a")
    assert out(*visitors, known) == [1]


def test_when_all_is_full_the_greediest_address_gives() -> None:
    greedy = [Visitor("a", since) for since in (5.0, 6.0, 7.0, 8.0)]
    modest = [Visitor("b", 1.0), Visitor("c", 2.0)]
    crowd = crowd_of(*greedy, *modest)
    assert crowd.make_room("d")
    assert out(*greedy, *modest) == [0]
    assert len(crowd) == 5


def test_nobody_who_is_served_goes() -> None:
    busy = [Visitor("a", busy=True) for _ in range(4)]
    crowd = crowd_of(*busy)
    assert not crowd.make_room("a")
    assert crowd.make_room("b")
    assert out(*busy) == []


def test_the_bytes_of_the_oldest_give_way_to_new_ones() -> None:
    old, new = Visitor("a", 1.0), Visitor("a", 2.0)
    crowd = crowd_of(old, new)
    crowd.hold(old, 90)
    crowd.hold(new, 20)
    assert (old.out, new.out, crowd.held) == (True, False, 20)
    crowd.release(new)
    assert crowd.held == 0


def test_who_fills_everything_alone_goes_itself() -> None:
    busy, greedy = Visitor("a", busy=True), Visitor("a")
    crowd = crowd_of(busy, greedy)
    crowd.hold(busy, 60)
    crowd.hold(greedy, 60)
    assert (busy.out, greedy.out, crowd.held) == (False, True, 60)


def test_who_is_late_is_found() -> None:
    late, punctual = Visitor("a", deadline=5.0), Visitor("a", deadline=6.0)
    assert crowd_of(late, punctual).overdue(5.0) == [late]


class Wire:
    """A transport."""

    def __init__(self) -> None:
        self.aborted = False

    def get_extra_info(self, _: str) -> Any:
        return None

    def abort(self) -> None:
        self.aborted = True


class Http:
    """Takes everything."""

    def __getattr__(self, _: str) -> Any:
        return lambda *_args: None


@pytest.fixture
def now() -> list[float]:
    return [100.0]


def connected(now: list[float]) -> tuple[Connection, Crowd, Wire]:
    crowd, wire = Crowd(LIMITS), Wire()
    connection = Connection(crowd, "a", lambda: now[0])
    crowd.add(connection)
    connection.serve(Http())  # type: ignore[arg-type]
    connection.connection_made(wire)  # type: ignore[arg-type]
    return connection, crowd, wire


def test_a_connection_has_a_time_for_each_of_its_states(now: list[float]) -> None:
    connection, crowd, _ = connected(now)
    assert connection.deadline == 100.0 + LIMITS.headers_s
    connection.data_received(b"12345")
    assert crowd.held == 5
    connection.asked(stream=False)
    assert (connection.state, connection.is_waiting()) == (State.WORK, False)
    connection.answered(whole=True)
    assert (connection.state, crowd.held, connection.deadline) == (State.IDLE, 0, 100.0 + LIMITS.idle_s)
    now[0] = 150.0
    connection.data_received(b"1")
    assert (connection.state, connection.deadline) == (State.HEADERS, 150.0 + LIMITS.headers_s)
    connection.connection_lost(None)
    assert (len(crowd), crowd.held) == (0, 0)


def test_headers_without_an_end_are_cut_off(now: list[float]) -> None:
    connection, _, wire = connected(now)
    connection.data_received(b"x" * 51)
    assert not wire.aborted, "a body may have come with them"
    connection.data_received(b"x")
    assert wire.aborted


def test_a_stream_is_neither_counted_nor_timed(now: list[float]) -> None:
    connection, crowd, wire = connected(now)
    connection.asked(stream=True)
    connection.data_received(b"x" * 1000)
    connection.pause_writing()
    assert (crowd.held, wire.aborted, connection.is_waiting()) == (0, False, False)
    assert crowd.overdue(1e9) == []


def test_an_answer_that_nobody_reads_has_its_time_too(now: list[float]) -> None:
    connection, crowd, _ = connected(now)
    connection.asked(stream=False)
    connection.pause_writing()
    assert crowd.overdue(100.0 + LIMITS.unread_s) == [connection]


def test_who_is_shown_out_in_the_handshake_never_comes_in(now: list[float]) -> None:
    crowd, wire, given_up = Crowd(LIMITS), Wire(), []
    connection = Connection(crowd, "a", lambda: now[0])
    connection.abandon = lambda: given_up.append(True)
    connection.show_out()
    connection.connection_made(wire)  # type: ignore[arg-type]
    assert (given_up, wire.aborted) == ([True], True)
