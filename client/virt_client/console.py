"""A guest's serial console: send, read, expect."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from virt_client.errors import AutomationError, Timeout, error_of
from virt_protos.automation.v1 import automation_pb2 as pb

_OPEN_S = 30.0
#: Chunks in each direction; beyond that the other side has to wait.
_DEPTH = 64
_TICK_S = 0.2


class Console:
    """`with client.console("guest") as console:`. One thread reads in the background."""

    def __init__(self, open_call: Callable[[Iterator[pb.ConsoleRequest]], Any], ref: pb.Ref) -> None:
        self._sending: queue.Queue[pb.ConsoleRequest | None] = queue.Queue(_DEPTH)
        self._received: queue.Queue[bytes | None] = queue.Queue(_DEPTH)
        self._closed = threading.Event()
        self._failure: AutomationError | None = None
        self._ended = False
        #: All that the guest has written since the console was opened, as text.
        self.seen = ""
        self._sending.put(pb.ConsoleRequest(open=pb.ConsoleOpen(ref=ref)))
        self._call = open_call(iter(self._sending.get, None))
        self._thread = threading.Thread(target=self._receive, name="console", daemon=True)
        self._thread.start()
        self._wait_open()

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closed.set()
        self._call.cancel()
        try:
            self._sending.put_nowait(None)
        except queue.Full:
            pass  # The call is cancelled, nobody takes the rest.
        self._thread.join(5.0)

    def send(self, data: bytes | str, timeout_s: float = 30.0) -> None:
        """Types into the guest. Waits while the guest does not take it."""
        self._raise_failure()
        request = pb.ConsoleRequest(data=data.encode() if isinstance(data, str) else data)
        try:
            self._sending.put(request, timeout=timeout_s)
        except queue.Full:
            raise _timeout(f"the guest did not take what was typed within {timeout_s:.0f} s") from None

    def read(self, timeout_s: float = 1.0) -> bytes:
        """What comes next; empty when nothing came in time or the console has ended (see `ended`)."""
        if self._ended:
            return b""
        try:
            data = self._received.get(timeout=timeout_s)
        except queue.Empty:
            return b""
        if data is None:
            self._ended = True
            self._raise_failure()
            return b""
        self.seen += data.decode(errors="replace")
        return data

    @property
    def ended(self) -> bool:
        """The guest's side is closed, and everything from it was read."""
        return self._ended

    def expect(self, text: str, *, timeout_s: float = 60.0, after: int = 0) -> int:
        """Waits until the guest has written `text` behind position `after` of `seen`; gives the position behind it."""
        deadline = time.monotonic() + timeout_s
        while (at := self.seen.find(text, after)) < 0:
            left = deadline - time.monotonic()
            if left <= 0 or self._ended:
                why = "the console ended" if self._ended else f"not within {timeout_s:.0f} s"
                raise _timeout(f"{text!r} did not come: {why}; last seen: {self.seen[-300:]!r}")
            self.read(min(left, 1.0))
        return at + len(text)

    def _wait_open(self) -> None:
        try:
            first = self._received.get(timeout=_OPEN_S)
        except queue.Empty:
            self.close()
            raise _timeout(f"the console did not open within {_OPEN_S:.0f} s") from None
        if first is None:
            self.close()
            self._raise_failure()
            raise AutomationError(grpc.StatusCode.UNKNOWN, "the service closed the console at once")

    def _receive(self) -> None:
        try:
            for response in self._call:
                # The first message, `opened`, passes as an empty chunk.
                self._put(response.data)
        except grpc.RpcError as error:
            if not self._closed.is_set():
                self._failure = error_of(error)
        finally:
            self._put(None)

    def _put(self, data: bytes | None) -> None:
        """Waits for the reader, so that a guest that writes without end fills no memory."""
        while not self._closed.is_set():
            try:
                return self._received.put(data, timeout=_TICK_S)
            except queue.Full:
                continue
        return None

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _timeout(message: str) -> Timeout:
    return Timeout(grpc.StatusCode.DEADLINE_EXCEEDED, message)
