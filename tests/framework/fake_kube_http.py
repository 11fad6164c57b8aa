"""The HTTP side of the fake API server."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from framework.fake_kube import Change, FakeKube, Object, failure
from framework.fake_kube_select import in_collection, matches
from framework.fake_kube_verbs import Answer, Request, answer


def make_handler(fake: FakeKube) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            with fake.changed:
                fake._sockets.add(self.connection)

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except OSError:
                self.close_connection = True  # The test broke the connection.

        def _serve(self) -> None:
            url = urlsplit(self.path)
            query = dict(parse_qsl(url.query))
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            fake.requests.append((self.command, url.path, query, body))
            given = fake.on_request(self.command, url.path, query, body) if fake.on_request else None
            if given is None and query.get("watch") == "true":
                self._watch(url.path, query)
                return
            request = Request(self.command, url.path, query, body, self.headers["Content-Type"] or "")
            self._answer(given or answer(fake, request))

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def _answer(self, given: Answer) -> None:
            status, content, headers = given
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                "Content-Length": str(len(data)),
                **headers,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def _watch(self, path: str, query: dict[str, str]) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            seen = int(query["resourceVersion"])
            while self.connection in fake._sockets:
                with fake.changed:
                    events, seen = _events_since(fake, path, query, seen)
                    if not events:
                        fake.changed.wait(0.2)
                for event in events:
                    line = json.dumps(event).encode() + b"\n"
                    self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                    if event["type"] == "ERROR":
                        self.wfile.write(b"0\r\n\r\n")
                        return
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


def _events_since(fake: FakeKube, path: str, query: dict[str, str], seen: int) -> tuple[list[Object], int]:
    if seen < fake.oldest:
        return [{"type": "ERROR", "object": failure(410, "Expired", "too old resource version")[1]}], seen
    news = [change for change in fake.log if change.version > seen]
    told = [_event(change, query) for change in news if in_collection(change.collection, path)]
    events: list[Object] = [event for event in told if event is not None]
    newest = max((change.version for change in news), default=seen)
    if fake.bookmarks and newest > seen:
        events.append({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(newest)}}})
    return events, newest


def _event(change: Change, query: dict[str, str]) -> Object | None:
    """What begins to match comes, what ceases to match goes."""
    after = change.type != "DELETED" and matches(change.obj, query)
    before = change.old is not None and matches(change.old, query)
    if not after and not before:
        return None
    kind = ("MODIFIED" if before else "ADDED") if after else "DELETED"
    return {"type": kind, "object": change.obj}
