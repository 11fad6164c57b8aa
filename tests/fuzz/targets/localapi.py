"""Requests to virt-local's API server: bodies in all of its formats, patches, selectors, lists and their options.

An input is a method, a path with its query and a content type in the first line, and the body after it. Nothing is
stored (`dryRun`), so each input meets the same objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml
from fuzz.hostile import WORDS, text_of
from fuzz.loopback import Loopback, Reply, served
from fuzz.mutate import edited, maybe_noisy, noisy
from fuzz.target import Run, Target
from hypothesis import strategies as st
from unit.api.reviews import vm
from unit.local.apiserver.conftest import config_map, pod

from virt_core import manifests
from virt_local.apiserver.app import build_app
from virt_local.apiserver.schema import protobuf, protobuf_write
from virt_local.apiserver.server import Server
from virt_local.apiserver.verbs.checks import APPLY_PATCH
from virt_local.apiserver.verbs.patch import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH

_MORE = 1 << 20
#: What a crash says. Some other answers are a 500 at Kubernetes, too.
_CRASH = b"see the log of the API server"
JSON, YAML = "application/json", "application/yaml"
PODS = "/api/v1/namespaces/default/pods"
CONFIGS = "/api/v1/namespaces/default/configmaps"
VMS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
#: A collection, and an object in it.
STORED: dict[str, dict[str, Any]] = {PODS: pod(), CONFIGS: config_map("c", a="b"), VMS: vm()}
STORED[VMS]["metadata"]["name"] = "v"
OPERATIONS = [
    [
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "copy", "from": "/metadata", "path": "/data"},
    ],
    [{"op": "test", "path": "/metadata/name", "value": "c"}, {"op": "move", "from": "/data/a", "path": "/data/b"}],
    [{"op": "remove", "path": "/spec/containers/0"}, {"op": "replace", "path": "/spec/containers/-", "value": 1}],
]
POINTERS = (
    "",
    "/",
    "//",
    "/data/a",
    "/spec/containers/0",
    "/spec/containers/²",
    "/spec/containers/" + "9" * 4400,
    "/~2",
    "a",
)
SELECTORS = (
    "a=b",
    "a in (b,c)",
    "!a",
    "a>1",
    "a>" + "9" * 4400,
    "a in (",
    "(((",
    "a==,,b",
    "metadata.name=c",
    "x=\\",
    "\\",
)
LIMITS = ("1", "-1", "²", "9" * 4400, "a", "1.5", "0x1", "")
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.org"},
    "spec": {
        "group": "example.org",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
                "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a[0]"}],
            }
        ],
    },
}


def _name(path: str) -> str:
    return str(STORED[path]["metadata"]["name"])


def _line(method: str, path: str, content: str, body: bytes) -> bytes:
    return f"{method} {path} {content}\n".encode("utf-8", "surrogatepass") + body


@st.composite
def writes(draw: st.DrawFn) -> bytes:
    """A create, an update or a server-side apply of a damaged object."""
    path = draw(st.sampled_from((*STORED, CRDS)))
    good = STORED.get(path, CRD)
    document = draw(edited([good]))
    if path == CRDS:
        return _line("POST", f"{path}?dryRun=All", JSON, text_of(document).encode("utf-8", "surrogatepass"))
    method, query = draw(st.sampled_from((("POST", ""), ("PUT", ""), ("PATCH", "&fieldManager=f&force=true"))))
    where = path if method == "POST" else f"{path}/{_name(path)}"
    content = draw(st.sampled_from((JSON, JSON, YAML, protobuf.MEDIA_TYPE))) if method != "PATCH" else APPLY_PATCH
    body = text_of(document).encode("utf-8", "surrogatepass")
    if content == YAML:
        body = yaml.safe_dump(good).encode()
        body = draw(noisy(body))
    elif content == protobuf.MEDIA_TYPE:
        body = draw(noisy(protobuf_write.encode(draw(st.sampled_from((STORED[PODS], STORED[CONFIGS]))))))
    return _line(method, f"{where}?dryRun=All{query}", content, body)


@st.composite
def patches(draw: st.DrawFn) -> bytes:
    path = draw(st.sampled_from(sorted(STORED)))
    kind = draw(st.sampled_from((JSON_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH)))
    if kind == JSON_PATCH:
        change = draw(edited(OPERATIONS))
        for operation in change if isinstance(change, list) else ():
            if isinstance(operation, dict) and draw(st.booleans()):
                operation[draw(st.sampled_from(("path", "from")))] = draw(st.sampled_from(POINTERS))
    else:
        change = draw(edited([STORED[path], {"data": {"$patch": "replace"}}, {"spec": {"$setElementOrder/x": [1]}}]))
    return _line("PATCH", f"{path}/{_name(path)}?dryRun=All", kind, text_of(change).encode("utf-8", "surrogatepass"))


@st.composite
def lists(draw: st.DrawFn) -> bytes:
    path = draw(st.sampled_from((*STORED, CRDS, "/api/v1/nodes", "/api/v1", "/openapi/v3", "/metrics", "/apis")))
    names = ("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "pretty")
    words = st.sampled_from((*SELECTORS, *LIMITS, *WORDS))
    given = [(draw(st.sampled_from(names)), draw(words)) for _ in range(draw(st.integers(1, 3)))]
    query = "&".join(f"{key}={_quoted(value)}" for key, value in given)
    return _line("GET", f"{path}?{query}", JSON, b"")


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode("utf-8", "surrogatepass"))


@contextmanager
def door(directory: Path) -> Iterator[Run]:
    def build() -> Any:
        server = Server.open(directory / "state.db", root_ca="PEM")
        started = asyncio.get_running_loop().create_task(server.start())

        async def close() -> None:
            await started
            await server.close()

        return build_app(server), close

    with served(build) as app:
        for document in manifests.load("crds/virtualmachines.yaml"):
            assert _send(app, "POST", CRDS, JSON, msgspec.json.encode(document)).status == 201
        for path, document in STORED.items():
            reply = _send(app, "POST", path, JSON, msgspec.json.encode(document))
            assert reply.status == 201, reply.body
        yield lambda data: judge(app, data)


def _send(app: Loopback, method: str, path: str, content: str, body: bytes) -> Reply:
    head = f"{method} {path} HTTP/1.1\r\nHost: local\r\nContent-Type: {content}\r\nConnection: close\r\n"
    return app.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode("utf-8", "surrogateescape") + body)


def judge(app: Loopback, data: bytes) -> None:
    line, _, body = data.partition(b"\n")
    method, _, rest = line.decode("utf-8", "surrogateescape").partition(" ")
    path, _, content = rest.rpartition(" ")
    if (
        method not in ("GET", "POST", "PUT", "PATCH")
        or (method != "GET" and "dryRun=All" not in path)
        or "watch" in path
    ):
        return
    reply = _send(app, method, path.replace("\r", ""), content.replace("\r", ""), body)
    assert _CRASH not in reply.body, f"{reply.status} {reply.body[:300]!r}"
    assert len(reply.body) <= 8 * len(body) + _MORE, f"{len(body)} bytes became {len(reply.body)}"


def _patch(operations: list[Any]) -> bytes:
    return _line("PATCH", f"{CONFIGS}/c?dryRun=All", JSON_PATCH, text_of(operations).encode())


def _labels(count: int) -> dict[str, Any]:
    return {"metadata": {"labels": {f"l{n}": "v" for n in range(count)}}}


FAMILIES = {
    "adds": lambda n: _patch([{"op": "add", "path": f"/data/k{i}", "value": "v"} for i in range(n)]),
    "tests": lambda n: _patch([{"op": "test", "path": "/data/a", "value": "b"}] * n),
    "copies": lambda n: _patch([{"op": "copy", "from": "/metadata", "path": f"/data/k{i}"} for i in range(n)]),
    "merge": lambda n: _line("PATCH", f"{CONFIGS}/c?dryRun=All", MERGE_PATCH, text_of(_labels(n)).encode()),
    "data": lambda n: _line(
        "POST", f"{CONFIGS}?dryRun=All", JSON, text_of(config_map("d", **{f"k{i}": "v" for i in range(n)})).encode()
    ),
    "labels": lambda n: _line("GET", f"{CONFIGS}?labelSelector={'a,' * n}a", JSON, b""),
}

TARGET = Target("localapi", maybe_noisy(writes() | patches() | lists()), door, 600, FAMILIES, may_keep=1 << 20)
