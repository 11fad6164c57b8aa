"""A small API server in a thread: enough of list, watch, create, replace, patch and delete to test clients against.

It keeps a log of changes, so watches resume by resourceVersion; `compact` forgets it, so that they get 410. `down` and
`up` play an outage: the objects stay, all connections break. `on_request` lets a test answer or delay anything itself.
"""

from __future__ import annotations

import json
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from virt_core.kube.client import KubeClient
from virt_core.kube.connect import Connection

Object = dict[str, Any]
#: Method, path, query, body → status and answer (None: go on as usual).
Hook = Callable[[str, str, dict[str, str], Any], "tuple[int, Any, dict[str, str]] | None"]


@dataclass(frozen=True, slots=True)
class Change:
    version: int
    collection: str
    type: str
    obj: Object
    old: Object | None


class FakeKube:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.objects: dict[str, Object] = {}
        self.log: list[Change] = []
        self.version = 100
        self.oldest = 0
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.on_request: Hook | None = None
        self.bookmarks = False
        self._sockets: set[socket.socket] = set()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.up()

    # Control, from the test.

    def up(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), _handler(self))
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), name="fake-kube", daemon=True).start()

    def down(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        self.break_connections()

    def break_connections(self) -> None:
        with self.changed:
            sockets, self._sockets = self._sockets, set()
            self.changed.notify_all()
        for connection in sockets:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # Already closed by the client.

    def compact(self) -> None:
        """Forgets the past: watches from an older version get 410."""
        with self.changed:
            self.oldest = self.version
            self.log.clear()

    def client(self, **options: Any) -> KubeClient:
        return KubeClient(Connection(server=f"http://127.0.0.1:{self.port}"), "test", **options)

    def methods(self, *wanted: str) -> list[tuple[str, str]]:
        """What was asked for, in order."""
        return [(m, p) for m, p, _, _ in list(self.requests) if not wanted or m in wanted]

    # The store.

    def put(self, path: str, obj: Object) -> Object:
        """Creates or changes the object at `/api/v1/namespaces/ns/pods/name` as the cluster itself would."""
        with self.changed:
            old = self.objects.get(path)
            self.version += 1
            meta = obj.setdefault("metadata", {})
            meta.setdefault("name", path.rsplit("/", 1)[1])
            parts = path.split("/")
            if "namespaces" in parts[:-2]:
                meta.setdefault("namespace", parts[parts.index("namespaces") + 1])
            meta["uid"] = old["metadata"]["uid"] if old else meta.get("uid") or str(uuid.uuid4())
            meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            meta["resourceVersion"] = str(self.version)
            self.objects[path] = obj
            self._record("MODIFIED" if old else "ADDED", path, obj, old)
            return obj

    def remove(self, path: str) -> Object:
        with self.changed:
            old = self.objects.pop(path)
            obj = dict(old)
            self.version += 1
            obj["metadata"] = {**obj["metadata"], "resourceVersion": str(self.version)}
            self._record("DELETED", path, obj, old)
            return obj

    def _record(self, kind: str, path: str, obj: Object, old: Object | None) -> None:
        now, before = json.loads(json.dumps([obj, old]))
        self.log.append(Change(self.version, path.rsplit("/", 1)[0], kind, now, before))
        self.changed.notify_all()

    def select(self, collection: str, query: dict[str, str]) -> list[Object]:
        from framework.fake_kube_select import in_collection, matches

        found = sorted(p for p in self.objects if in_collection(p.rsplit("/", 1)[0], collection))
        return [self.objects[p] for p in found if matches(self.objects[p], query)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are what half of the tests are about."""


def failure(code: int, reason: str, message: str) -> tuple[int, Object, dict[str, str]]:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return code, body, {}


def _handler(fake: FakeKube) -> type[BaseHTTPRequestHandler]:
    from framework.fake_kube_http import make_handler

    return make_handler(fake)


@contextmanager
def fake_kube() -> Iterator[FakeKube]:
    fake = FakeKube()
    try:
        yield fake
    finally:
        fake.down()
