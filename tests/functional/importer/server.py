"""A real HTTP server with one file, and the bad habits of real servers."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Habits:
    """How the server behaves; may be changed between requests."""

    content: bytes = b""
    ranges: bool = True
    etag: str = '"one"'
    #: Closes the connection after so many bytes of a body, this many times.
    cut_after: int = 0
    cuts: int = 0
    #: Says another length than it has.
    claim_more: int = 0
    say_length: bool = True
    status: int = 0
    location: str = ""
    needs: dict[str, str] = field(default_factory=dict)
    #: What was asked for: path and range.
    asked: list[tuple[str, str]] = field(default_factory=list)
    #: Waits behind so many bytes of a body until it may go on.
    stall_after: int = 0
    stalled: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    #: What comes behind that is never sent.
    gives_up: bool = False
    seen: list[dict[str, str]] = field(default_factory=list)
    sent: int = 0


class _Handler(BaseHTTPRequestHandler):
    habits: Habits
    timeout = 20

    def do_GET(self) -> None:
        habits = self.habits
        habits.asked.append((self.path, self.headers.get("Range", "")))
        habits.seen.append(dict(self.headers))
        if habits.location and self.path != "/moved":
            self._answer(302, {"Location": habits.location}, b"")
        elif habits.status:
            self._answer(habits.status, {}, b"")
        elif any(self.headers.get(name) != value for name, value in habits.needs.items()):
            self._answer(401, {}, b"")
        else:
            self._file(habits)

    def _file(self, habits: Habits) -> None:
        headers = {"ETag": habits.etag} if habits.etag else {}
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        whole, status = habits.content, 200
        if found and habits.ranges and self.headers.get("If-Range", habits.etag) == habits.etag:
            start, end = int(found[1]), int(found[2]) if found[2] else len(whole) - 1
            body, status = whole[start : end + 1], 206
            headers["Content-Range"] = f"bytes {start}-{start + len(body) - 1}/{len(whole)}"
        else:
            body = whole
        self._answer(status, headers, body)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        habits = self.habits
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if habits.say_length:
            self.send_header("Content-Length", str(len(body) + (habits.claim_more if len(body) > 1 else 0)))
        self.end_headers()
        if habits.cuts and len(body) > habits.cut_after:
            habits.cuts -= 1
            body = body[: habits.cut_after]
        with suppress(ConnectionError):  # Who only asks what it is does not wait for all of it.
            if habits.stall_after and len(body) > habits.stall_after:
                self.wfile.write(body[: habits.stall_after])
                self.wfile.flush()
                body = body[habits.stall_after :]
                habits.stalled.set()
                habits.go_on.wait(90)
                body = b"" if habits.gives_up else body
            self.wfile.write(body)
        habits.sent += len(body)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(habits: Habits, address: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[str]:
    """The URL of its file."""
    server = ThreadingHTTPServer(address, type("Bound", (_Handler,), {"habits": habits}))
    thread = threading.Thread(target=server.serve_forever, name="file-server")
    thread.start()
    try:
        yield f"http://{address[0]}:{server.server_address[1]}/disk"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
