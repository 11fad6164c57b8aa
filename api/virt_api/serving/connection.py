"""One connection: stands between the socket and aiohttp's protocol, and keeps time and bytes of its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Any

from virt_api.serving.crowd import Crowd, Rank


class State(Enum):
    HANDSHAKE = "handshake"
    #: Between two requests.
    IDLE = "idle"
    #: In the headers of a request.
    HEADERS = "headers"
    #: In the body of a request, and somebody waits for it.
    BODY = "body"
    #: It is our turn.
    WORK = "work"
    #: In the rest of a body that nobody wants.
    REST = "rest"
    #: A websocket.
    STREAM = "stream"


_WAITING = frozenset({State.HANDSHAKE, State.IDLE, State.HEADERS, State.BODY, State.REST})
#: What comes is not kept by us.
_FLOWING = frozenset({State.REST, State.STREAM})


class Connection(asyncio.Protocol):
    """`rank`, `since`, `deadline` and `held` are for the crowd."""

    def __init__(self, crowd: Crowd, address: str, now: Callable[[], float]) -> None:
        self._crowd, self._now, self.limits = crowd, now, crowd.limits
        self.address, self.rank, self.held = address, Rank.STRANGER, 0
        self._inner: asyncio.Protocol | None = None
        self._transport: Any = None
        self._begun = self._gone = False
        #: Gives the handshake up.
        self.abandon: Callable[[], object] = lambda: None
        self._to(State.HANDSHAKE, self.limits.handshake_s)

    def serve(self, inner: asyncio.Protocol) -> None:
        """Everything goes on to this protocol."""
        self._inner = inner

    def is_served(self) -> bool:
        return self._inner is not None

    def is_waiting(self) -> bool:
        return self.state in _WAITING

    def show_out(self) -> None:
        self._gone = True
        if self._transport is not None:
            self._transport.abort()
        else:
            self.abandon()

    # What the handlers of requests say.

    def asked(self, *, stream: bool) -> None:
        """The headers are there."""
        self._to(State.STREAM if stream else State.WORK)

    def flowing(self) -> None:
        """The body is handed on and not kept; what was held of it is not ours any more."""
        self._crowd.release(self)
        self._to(State.STREAM)

    def reading(self) -> None:
        """A handler waits for the body, and for how long is its own affair."""
        self._to(State.BODY)

    def read(self) -> None:
        """The body is there."""
        self._to(State.WORK)

    def answered(self, *, whole: bool) -> None:
        """`whole`: its body was read to the end. What comes of another one is thrown away, for a moment."""
        self._crowd.release(self)
        if whole:
            self._to(State.IDLE, self.limits.idle_s)
        else:
            self._to(State.REST, self.limits.rest_s)

    def _to(self, state: State, within_s: float = inf) -> None:
        self.state = state
        self.since = self._now()
        self.deadline = self.since + within_s

    # What asyncio says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self._gone:
            self.show_out()
            return
        if transport.get_extra_info("peercert"):
            # Only the aggregation layer of the API server has one that we accept.
            self.rank = Rank.TRUSTED
        self._to(State.HEADERS, self.limits.headers_s)
        if self._inner is not None:
            self._begun = True
            self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self.state is State.IDLE:
            self._to(State.HEADERS, self.limits.headers_s)
        if self.state not in _FLOWING:
            endless = self.state is State.HEADERS and self.held > self.limits.header_bytes
            self._crowd.hold(self, len(data))
            if endless:
                self.show_out()
        if self._inner is not None and not self._gone:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._inner is not None else None

    def pause_writing(self) -> None:
        if self.state is not State.STREAM:
            self.deadline = self._now() + self.limits.unread_s
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self.state is not State.STREAM:
            self.deadline = self._now() + self.limits.idle_s
        if self._inner is not None:
            self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._crowd.remove(self)
        if self._inner is not None and self._begun:
            self._inner.connection_lost(exc)
