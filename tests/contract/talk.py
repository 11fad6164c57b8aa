"""One conversation with a server: sends requests, writes down what was asked and answered."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import urllib3
from contract.decode import decoded
from contract.engine import Engine
from contract.normal import Normal, without_ages

if TYPE_CHECKING:
    from contract.backends import Backends

Object = dict[str, Any]
Pick = Callable[[Any], Any]

GROUP = "contract.virtpod.test"
GADGETS = f"/apis/{GROUP}/v1/namespaces/{{ns}}/gadgets"
PARTS = f"/apis/{GROUP}/v1/parts"
MAPS = "/api/v1/namespaces/{ns}/configmaps"
PODS = "/api/v1/namespaces/{ns}/pods"

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

_TIMEOUT = urllib3.Timeout(connect=5, read=40)
_HEADERS = ("Content-Type", "Warning", "Retry-After")


class Reply:
    """An answer as it came: its status, its body as data, and the revision of the object in it."""

    def __init__(self, status: int, body: Any) -> None:
        self.status = status
        self.body = body

    @property
    def revision(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def uid(self) -> str:
        return str(self.body["metadata"]["uid"])


class Talk:
    """Paths may name `{ns}`, this conversation's own namespace, which is made when it is first needed."""

    def __init__(self, engine: Engine, backends: Backends, normal: Normal) -> None:
        self.engine = engine
        self.backends = backends
        self.normal = normal
        self.normal.names[engine.user] = "ADMIN"
        self.transcript: list[Object] = []
        self._namespace = ""
        self._undo: list[str] = []

    # The place.

    @property
    def ns(self) -> str:
        if not self._namespace:
            name = f"contract-{secrets.token_hex(4)}"
            self.normal.names[name] = "NS"
            self._namespace = name
            self._undo.append(f"/api/v1/namespaces/{name}")
            answer = self.send(
                "POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {"contract": "yes"}}}
            )
            assert answer.status == 201, answer.body
            for made in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
                self.wait(f"/api/v1/namespaces/{name}/{made}", lambda reply: reply.status == 200)
        return self._namespace

    def own(self, prefix: str, word: str) -> str:
        """A name of this run alone, for objects outside namespaces. It shows as `word`."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.normal.names[name] = word
        return name

    def undo(self, path: str) -> None:
        """Deletes something when the conversation is over."""
        self._undo.append(self._path(path))

    def close(self) -> None:
        for path in reversed(self._undo):
            self.send("DELETE", path, {"propagationPolicy": "Background"})

    # Requests that are written down.

    def get(self, path: str, **more: Any) -> Reply:
        return self.call("GET", path, **more)

    def create(self, path: str, body: Any, **more: Any) -> Reply:
        return self.call("POST", path, body, **more)

    def update(self, path: str, body: Any, **more: Any) -> Reply:
        return self.call("PUT", path, body, **more)

    def delete(self, path: str, body: Any = None, **more: Any) -> Reply:
        return self.call("DELETE", path, body, **more)

    def patch(self, path: str, body: Any, kind: str = MERGE, **more: Any) -> Reply:
        return self.call("PATCH", path, body, content_type=kind, **more)

    def call(self, method: str, path: str, body: Any = None, *, pick: Pick | None = None, **more: Any) -> Reply:
        """`pick` chooses the part of the answer that is compared."""
        path = self._path(path)
        answer, headers = self._exchange(method, path, body, **more)
        shown = pick(without_ages(answer.body)) if pick and answer.status < 400 else answer.body
        entry: Object = {"request": f"{method} {self.normal.path(path)}", "status": answer.status}
        entry |= {"headers": headers} if headers else {}
        self.transcript.append(entry | {"body": self.normal.body(shown)})
        return answer

    def note(self, what: str, value: Any) -> None:
        """Writes down an observation that is not an answer by itself."""
        self.transcript.append({"note": what, "value": self.normal.body(value)})

    def until(self, path: str, check: Callable[[Reply], bool], *, pick: Pick | None = None) -> Reply:
        """Asks until the answer is as wished, and writes that one down."""
        self.wait(self._path(path), check)
        return self.call("GET", path, pick=pick)

    # Requests that are not.

    def send(self, method: str, path: str, body: Any = None, **more: Any) -> Reply:
        return self._exchange(method, self._path(path), body, **more)[0]

    def given(self, path: str, body: Any, **more: Any) -> Reply:
        """Makes something that the case takes for granted."""
        answer = self.send("POST", path, body, **more)
        assert answer.status == 201, answer.body
        return answer

    def wait(self, path: str, check: Callable[[Reply], bool], within_s: float = 20.0) -> Reply:
        deadline = time.monotonic() + within_s
        while not check(reply := self.send("GET", path)):
            assert time.monotonic() < deadline, f"{path} did not become as expected: {reply.status} {reply.body}"
            time.sleep(0.02)
        return reply

    def _path(self, path: str) -> str:
        return path.replace("{ns}", self.ns) if "{ns}" in path else path

    def _exchange(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[Reply, Object]:
        answer = self._request(method, path, body, **more)
        body = decoded(answer)
        self.normal.learn(body)
        return Reply(answer.status, body), self._headers(answer)

    def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        user: str = "",
        headers: Object | None = None,
        anonymous: bool = False,
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        sent = {"Accept": accept, "User-Agent": "contract/1", **(headers or {})}
        if user:
            sent["Impersonate-User"] = user
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = content_type
        pool = self.engine.pool(anonymous=anonymous)
        url = self.engine.url + path
        return pool.request(method, url, body=data, headers=sent, timeout=_TIMEOUT, preload_content=not stream)

    def _headers(self, answer: urllib3.BaseHTTPResponse) -> Object:
        kept = {name: answer.headers.getlist(name) for name in _HEADERS if name in answer.headers}
        # virt-local says what it keeps without enforcing it; a cluster has nothing to say there.
        kept["Warning"] = [text for text in kept.get("Warning", []) if not text.startswith('299 - "virt-local keeps')]
        kept = {name: values for name, values in kept.items() if values}
        plain = kept.get("Content-Type") == ["application/json"]
        shown = {n: [self.normal.text(v) for v in values] for n, values in kept.items()}
        return {n: values for n, values in shown.items() if not (n == "Content-Type" and plain)}

    # Watches.

    @contextmanager
    def watching(self, path: str, query: str = "", *, accept: str = "application/json") -> Iterator[Watching]:
        """A watch that is open while the block runs; its events are written down by `expect`."""
        path = self._path(path)
        answer = self._request("GET", f"{path}?watch=1&timeoutSeconds=20{query}", accept=accept, stream=True)
        try:
            yield Watching(self, path, answer)
        finally:
            answer.close()

    def watch(self, path: str, query: str, count: int, **more: Any) -> list[Object]:
        """Opens a watch, writes its first events down, closes it."""
        with self.watching(path, query, accept=more.pop("accept", "application/json")) as watching:
            return watching.expect(count, **more)


class Watching:
    def __init__(self, talk: Talk, path: str, answer: urllib3.BaseHTTPResponse) -> None:
        self._talk = talk
        self._path = path
        self.status = answer.status
        self._answer = answer
        self._chunks = answer.stream(65536)
        self._lines: list[bytes] = []
        self._rest = b""

    def expect(self, count: int, *, bookmarks: bool = False) -> list[Object]:
        """Reads this many events. Bookmarks come when the server likes, so they are not counted unless they mark the
        end of the initial events."""
        events: list[Object] = []
        while len(events) < count:
            line = self._line()
            if line is None:
                break
            event = json.loads(line)
            if bookmarks or event.get("type") != "BOOKMARK" or (event["object"]["metadata"].get("annotations")):
                events.append(event)
        shown = self._talk.normal.body(events)
        self._talk.transcript.append(
            {"watch": self._talk.normal.text(self._path), "status": self.status, "events": shown}
        )
        return events

    def _line(self) -> bytes | None:
        while b"\n" not in self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return self._rest or None
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line
