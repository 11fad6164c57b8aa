"""The stream of a watch: one JSON object a line, turned into typed events.

Reads whatever has arrived and splits it in one go, since a burst of a hundred VMs brings thousands of lines at once.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec
import urllib3
from urllib3.exceptions import HTTPError

from virt_core.apis.base import decode
from virt_core.apis.meta import PartialObjectMetadata
from virt_core.kube.errors import Undecodable, Unreachable, error_from
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

T = TypeVar("T")

#: A VMI is some 10 KiB; the API server itself refuses objects over 3 MiB.
_MAX_LINE = 32 << 20
_READ_SIZE = 256 << 10


class WatchEvent(msgspec.Struct, Generic[T], gc=False):
    """ADDED, MODIFIED or DELETED with the object, or BOOKMARK with only the version."""

    type: str
    object: T | None
    resource_version: str


class _Frame(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


_frames = msgspec.json.Decoder(_Frame)


class Watch(Generic[T]):
    """An iterator over the events. `close` from any thread ends it at once."""

    def __init__(self, response: urllib3.BaseHTTPResponse, cls: type[T], skip_invalid: bool = False) -> None:
        self._response = response
        self._cls = cls
        self._skip_invalid = skip_invalid
        self._closed = False
        # Kept now: urllib3 forgets the connection when the answer ends, and close comes from another thread.
        connection = getattr(response, "connection", None)
        self._socket: socket.socket | None = getattr(connection, "sock", None)

    def close(self) -> None:
        self._closed = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # The server was quicker.

    def __enter__(self) -> Watch[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._response.close()

    def __iter__(self) -> Iterator[WatchEvent[T]]:
        try:
            for line in self._lines():
                event = self._event(line)
                if event is not None:
                    yield event
        finally:
            self._response.close()

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        while chunk := self._read():
            if b"\n" not in chunk:
                rest += chunk
                if len(rest) > _MAX_LINE:
                    raise Undecodable(f"a watch event of {self._cls.__name__} is over {_MAX_LINE} bytes")
                continue
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (line for line in lines if line)

    def _read(self) -> bytes:
        """What has arrived; empty at the end."""
        try:
            data: bytes = self._response.read1(_READ_SIZE)
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            # Closing from another thread shows as one of several errors, depending on where the reader was.
            if self._closed:
                return b""
            raise Unreachable(f"the watch of {self._cls.__name__} broke: {error}") from error
        return b"" if self._closed else data

    def _event(self, line: bytes) -> WatchEvent[T] | None:
        try:
            frame = _frames.decode(line)
        except msgspec.MsgspecError as error:
            raise Undecodable(f"a watch event of {self._cls.__name__}: {error}") from error
        if frame.type == "ERROR":
            raise error_from(0, bytes(frame.object))
        if frame.type == "BOOKMARK":
            version = decode(frame.object, PartialObjectMetadata).metadata.resource_version
            return WatchEvent("BOOKMARK", None, version)
        return self._typed(frame)

    def _typed(self, frame: _Frame) -> WatchEvent[T] | None:
        try:
            obj: Any = decode(frame.object, self._cls)
        except msgspec.MsgspecError as error:
            if not self._skip_invalid:
                raise Undecodable(f"a watch event of {self._cls.__name__}: {error}") from error
            log.error("left out an object that does not fit its kind", kind=self._cls.__name__, error=str(error))
            return None
        return WatchEvent(frame.type, obj, obj.metadata.resource_version)
