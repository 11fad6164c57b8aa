"""Requests for every subresource, through virt-api's own application: paths, queries, upgrades and bodies.

An input is a request line and headers, an empty line, and the body. What is missing of a good request is added. The
answer may be anything but a failure of virt-api itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz.hostile import WORDS, text_of
from fuzz.loopback import Loopback
from fuzz.mutate import edited, maybe_noisy, noisy, whole_document
from fuzz.target import Run, Target
from fuzz.virtapi import virt_api
from hypothesis import strategies as st
from unit.api.reviews import vm

from virt_api.subresources import bodies
from virt_api.subresources.discovery import ROOT, VERSIONS
from virt_api.subresources.routes import ROUTES
from virt_core.apis.support.table import TODAY
from virt_core.apis.vm import VirtualMachine

_MORE = 256 << 10
#: 503 and 504 are what a node that does not answer is worth.
_OURS = range(500, 503)
UPGRADE = (b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13")
KEYS = (b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", b"Sec-WebSocket-Key: x", b"")
PROTOCOLS = (b"plain.kubevirt.io", b"", b"a,b", b"\xff", b"v5.channel.k8s.io", b"a" * 5000)
QUERIES = (
    "",
    "?preserveSession=true",
    "?port=1&tls=maybe",
    "?tls=",
    "?port=99999999999999999999",
    "?a=%00%ff",
    "?;&&==",
)
SEGMENTS = ("vm1", "vm2", "..", "%2e%2e", "a%2Fb", "%00", "A", "a" * 300, "%f0%9f%98%80", "", "*")
PORTS = ("80", "0", "-1", "65536", "9" * 4400, "a", "%31", "²", "+1", "1_0", " 1")
BODIES = [
    whole_document(each)
    for each in vars(bodies).values()
    if isinstance(each, type) and issubclass(each, bodies.Struct) and each is not bodies.Struct
]
BODIES += [vm(), {"unfreezeTimeout": "5m0s"}, {"name": "v", "disk": {"disk": {"bus": "scsi"}}, "volumeSource": {}}]
_WHOLE = {
    "spec": whole_document(VirtualMachine)["spec"],
    **{key: value for body in BODIES for key, value in body.items()},
}


def templates() -> list[tuple[str, str]]:
    known = [(route.method, route.template) for route in ROUTES]
    return known + [("GET", f"/namespaces/{{namespace}}/virtualmachines/{{name}}/{sub}") for sub in TODAY.subresources]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    method, template = draw(st.sampled_from(templates()))
    usual = draw(st.integers(0, 3)) > 0
    names = {"namespace": "default", "name": "vm1", "port": "80", "protocol": "tcp"}
    if not usual:
        names = {
            "namespace": draw(st.sampled_from(SEGMENTS)),
            "name": draw(st.sampled_from(SEGMENTS)),
            "port": draw(st.sampled_from(PORTS)),
            "protocol": draw(st.sampled_from(("tcp", "udp", "TCP", "x", "%00"))),
        }
    path = template
    for key, value in names.items():
        path = path.replace(f"{{{key}}}", value)
    query = draw(st.sampled_from(QUERIES)) if draw(st.booleans()) else ""
    method = method if draw(st.integers(0, 9)) else draw(st.sampled_from(("GET", "PUT", "POST", "DELETE", "HEAD", "X")))
    lines = [f"{method} {ROOT}/{draw(st.sampled_from(VERSIONS))}{path}{query} HTTP/1.1".encode()]
    if method == "GET" and draw(st.booleans()):
        lines += [*UPGRADE, draw(st.sampled_from(KEYS)), b"Sec-WebSocket-Protocol: " + draw(st.sampled_from(PROTOCOLS))]
    if draw(st.integers(0, 9)) == 0:
        lines.append(
            draw(st.sampled_from((b"Content-Type: text/yaml", b"Content-Encoding: gzip", b"Expect: 100-continue")))
        )
    body = b"" if method == "GET" else text_of(draw(edited(BODIES, _WHOLE))).encode("utf-8", "surrogatepass")
    return b"\r\n".join([*filter(None, lines), b"", b""]) + body


@st.composite
def with_noise(draw: st.DrawFn) -> bytes:
    """Noise in the body more often than in the head: the head is aiohttp's to read."""
    data = draw(requests())
    head, _, body = data.partition(b"\r\n\r\n")
    kind = draw(st.integers(0, 15))
    if kind == 0:
        head = draw(noisy(head))
    elif kind < 3:
        body = draw(noisy(body))
    return head + b"\r\n\r\n" + body


@contextmanager
def door(directory: Path) -> Iterator[Run]:
    with virt_api(directory) as app:
        yield lambda data: judge(app, data)


def judge(app: Loopback, data: bytes) -> None:
    head, _, body = data.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith((b"content-length", b"transfer-enc"))]
    lines += [b"Host: virt-api", b"X-Remote-User: bob", f"Content-Length: {len(body)}".encode()]
    if b"connection:" not in head.lower():
        lines.append(b"Connection: close")
    reply = app.send(b"\r\n".join((*lines, b"", b"")) + body)
    assert reply.status not in _OURS, f"{reply.status} {reply.body[:200]!r}"
    assert len(reply.body) <= 4 * len(body) + _MORE, f"{len(body)} bytes became {len(reply.body)}"


def _put(template: str, document: Any) -> bytes:
    path = template.replace("{namespace}", "default").replace("{name}", "vm1")
    return f"PUT {ROOT}/v1{path} HTTP/1.1\r\n\r\n".encode() + text_of(document).encode()


VMI = "/namespaces/{namespace}/virtualmachineinstances/{name}"


def _disks(count: int) -> bytes:
    disks = [{"name": f"d{n}", "disk": {}} for n in range(count)]
    spec = {"template": {"spec": {"domain": {"devices": {"disks": disks}}}}}
    return _put("/namespaces/{namespace}/expand-vm-spec", {"spec": spec})


FAMILIES = {
    "disks": _disks,
    "duration": lambda n: _put(f"{VMI}/freeze", {"unfreezeTimeout": "1s" * n}),
    "digits": lambda n: _put(f"{VMI}/freeze", {"unfreezeTimeout": "1" * n}),
    "dry-runs": lambda n: _put(f"{VMI}/pause", {"dryRun": ["x"] * n}),
    "ignored": lambda n: _put(f"{VMI}/pause", {"ignored": [{"a": WORDS[3]}] * n}),
}

TARGET = Target("subresources", maybe_noisy(with_noise()), door, examples=400, families=FAMILIES, may_keep=1 << 20)
