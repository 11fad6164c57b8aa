"""The HTTP side of the fake API server."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from framework.fake_kube import FakeKube, Object, failure, in_collection, matches

Answer = tuple[int, Any, dict[str, str]]


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
            answer = fake.on_request(self.command, url.path, query, body) if fake.on_request else None
            if answer is None and query.get("watch") == "true":
                self._watch(url.path, query)
                return
            self._answer(answer or _dispatch(fake, self.command, url.path, query, body, self.headers["Content-Type"]))

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        def _answer(self, answer: Answer) -> None:
            status, content, headers = answer
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
    news = [entry for entry in fake.log if entry[0] > seen]
    events: list[Object] = [
        {"type": told, "object": obj}
        for _, collection, kind, obj, old in news
        if in_collection(collection, path) and (told := _told(kind, obj, old, query))
    ]
    newest = max((entry[0] for entry in news), default=seen)
    if fake.bookmarks and newest > seen:
        events.append({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(newest)}}})
    return events, newest


def _told(kind: str, obj: Object, old: Object | None, query: dict[str, str]) -> str:
    """What a change means to a watcher: what enters its selection is added, what leaves it is deleted."""
    is_in, was_in = matches(obj, query), old is not None and matches(old, query)
    if kind != "MODIFIED":
        return kind if is_in else ""
    return ("MODIFIED" if was_in else "ADDED") if is_in else ("DELETED" if was_in else "")


def _dispatch(fake: FakeKube, method: str, path: str, query: dict[str, str], body: Any, kind: str | None) -> Answer:
    path = path.removesuffix("/status")
    with fake.changed:
        if method == "POST":
            return _create(fake, path, body)
        if method == "GET" and path not in fake.objects and _is_collection(path):
            return _list(fake, path, query)
        if path not in fake.objects and method == "PATCH" and kind == "application/apply-patch+yaml":
            return _create(fake, path.rsplit("/", 1)[0], body)
        if path not in fake.objects:
            return failure(404, "NotFound", f"{path.rsplit('/', 1)[1]} not found")
        if method == "GET":
            return 200, fake.objects[path], {}
        return _change(fake, method, path, body, kind or "")


def _is_collection(path: str) -> bool:
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return len(rest) == 1


def _create(fake: FakeKube, path: str, body: Object) -> Answer:
    name = body["metadata"].get("name") or f"{body['metadata']['generateName']}{fake.version:05x}"
    body["metadata"]["name"] = name
    if f"{path}/{name}" in fake.objects:
        return failure(409, "AlreadyExists", f"{name} already exists")
    return 201, fake.put(f"{path}/{name}", body), {}


def _list(fake: FakeKube, path: str, query: dict[str, str]) -> Answer:
    items = fake.select(path, query)
    start, limit = int(query.get("continue") or 0), int(query.get("limit") or 0)
    meta = {"resourceVersion": str(fake.version)}
    if limit and start + limit < len(items):
        meta["continue"] = str(start + limit)
    return 200, {"metadata": meta, "items": items[start : start + limit] if limit else items}, {}


def _change(fake: FakeKube, method: str, path: str, body: Any, kind: str) -> Answer:
    old = fake.objects[path]
    if method == "DELETE":
        wanted = (body or {}).get("preconditions") or {}
        for field, words in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            if wanted.get(field) not in (None, "", old["metadata"][field]):
                return failure(409, "Conflict", f"the {words} in the precondition does not match")
        return 200, fake.remove(path), {}
    if method == "PUT":
        if body["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
            return failure(409, "Conflict", "the object has been modified")
        return 200, fake.put(path, body), {}
    new = json.loads(json.dumps(old))
    if kind == "application/json-patch+json":
        if not _json_patch(new, body):
            return failure(
                422, "Invalid", "the server rejected our request due to an error in our request: test failed"
            )
    else:
        _merge(new, body)
    return 200, fake.put(path, new), {}


def _merge(target: Object, patch: Object) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = value


def _json_patch(document: Object, operations: list[Object]) -> bool:
    """Enough of RFC 6902 for tests. False: a test failed or a path does not exist."""
    for operation in operations:
        *parents, last = [p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:]]
        target: Any = document
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target.get(part)
            if target is None:
                return False
        if not _apply(target, last, operation):
            return False
    return True


def _apply(target: Any, last: str, operation: Object) -> bool:
    kind, value = operation["op"], operation.get("value")
    if isinstance(target, list):
        if kind == "add":
            target.insert(len(target) if last == "-" else int(last), value)
        elif kind == "remove":
            del target[int(last)]
        elif kind == "replace":
            target[int(last)] = value
        return kind != "test" or target[int(last)] == value
    if kind == "test":
        return bool(target.get(last) == value)
    if kind in ("remove", "replace") and last not in target:
        return False
    if kind == "remove":
        del target[last]
    else:
        target[last] = value
    return True
