"""Admission reviews for every webhook, through virt-api's own application.

An input is the webhook's path in its first line and the body of the review after it. Whatever it is, the answer is an
AdmissionReview, or a 4xx.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from fuzz.hostile import text_of
from fuzz.loopback import Loopback
from fuzz.mutate import edited, maybe_noisy, whole_document
from fuzz.target import Run, Target
from fuzz.virtapi import virt_api
from hypothesis import strategies as st
from unit.api.reviews import HOOKS, ON_CREATE, vm, vmi
from unit.api.test_admission_fuzz import SPECS

from virt_api.authn import API_SERVER
from virt_api.subresources.discovery import REVIEWS
from virt_core.apis.registry import resource_by_kind

PATHS = sorted(HOOKS)
OPERATIONS = ("CREATE", "UPDATE", "DELETE", "CONNECT", "")
#: What virt-api may add to what it was sent: defaults, and the causes of a refusal.
_MORE = 256 << 10
_GOOD = 200
_FROM_API_SERVER = (b"X-Remote-User: " + API_SERVER.encode(), b"Content-Type: application/json")


@cache
def whole(kind: str) -> Any:
    return whole_document(resource_by_kind(kind).load())


def objects() -> list[dict[str, Any]]:
    """One good object of each kind."""
    known = [vmi(), vm()]
    return known + [
        {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "t", "namespace": "default"}, "spec": spec}
        for kind, spec in SPECS.items()
    ]


@st.composite
def reviews(draw: st.DrawFn) -> bytes:
    """A webhook of the object's kind, mostly, and a review in which the object is damaged, or the review is."""
    good = draw(st.sampled_from(objects()))
    kind = good["kind"]
    path = draw(st.sampled_from(ON_CREATE.get(kind, PATHS)) | st.sampled_from(PATHS))
    request: dict[str, Any] = {
        "uid": "r1",
        "kind": {"group": "kubevirt.io", "version": "v1", "kind": kind},
        "namespace": "default",
        "name": "t",
        "operation": draw(st.sampled_from(OPERATIONS)),
        "userInfo": {"username": draw(st.sampled_from(("alice", "system:serviceaccount:kubevirt:virt-handler")))},
        "object": draw(edited([good], whole(kind))),
        "oldObject": draw(st.none() | st.just(good) | edited([good], whole(kind))),
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    if draw(st.integers(0, 9)) == 9:
        review = draw(edited([review], most=2))
    return path.encode() + b"\n" + text_of(review).encode("utf-8", "surrogatepass")


@contextmanager
def door(directory: Path) -> Iterator[Run]:
    with virt_api(directory) as app:
        yield lambda data: judge(app, data)


def judge(app: Loopback, data: bytes) -> None:
    path, _, body = data.partition(b"\n")
    if path.decode(errors="replace") not in HOOKS:
        return
    lines = (
        b"POST " + REVIEWS.encode() + path + b" HTTP/1.1",
        b"Host: virt-api",
        b"Connection: close",
        *_FROM_API_SERVER,
    )
    reply = app.send(b"\r\n".join((*lines, f"Content-Length: {len(body)}".encode(), b"", b"")) + body)
    assert reply.status != 403, "nothing is tested when the review is not believed"
    assert reply.status == _GOOD or 400 <= reply.status < 500, f"{reply.status} {reply.body[:200]!r}"
    assert len(reply.body) <= 4 * len(body) + _MORE, f"{len(body)} bytes became {len(reply.body)}"
    if reply.status == _GOOD:
        response = msgspec.json.decode(reply.body)["response"]
        assert response["allowed"] or 400 <= response["status"]["code"] < 500, response


def _create(path: str, obj: dict[str, Any]) -> bytes:
    request = {"uid": "r", "kind": {"kind": obj["kind"]}, "namespace": "default", "operation": "CREATE", "object": obj}
    return path.encode() + b"\n" + text_of({"request": request}).encode()


def _many(place: str, entry: Any) -> Any:
    """VMIs with ever more entries in one list."""

    def grow(parts: int) -> bytes:
        made = vmi()
        parent: Any = made["spec"]
        *way, last = place.split(".")
        for name in way:
            parent = parent.setdefault(name, {})
        parent[last] = [entry(number) for number in range(parts)]
        return _create("/virtualmachineinstances-validate-create", made)

    return grow


FAMILIES = {
    "disks": _many("domain.devices.disks", lambda n: {"name": f"d{n}", "disk": {"bus": "virtio"}}),
    "volumes": _many("volumes", lambda n: {"name": f"d{n}", "emptyDisk": {"capacity": "1Gi"}}),
    "networks": _many("networks", lambda n: {"name": f"n{n}", "multus": {"networkName": f"n{n}"}}),
    "interfaces": _many("domain.devices.interfaces", lambda n: {"name": f"n{n}", "bridge": {}}),
    "gpus": _many("domain.devices.gpus", lambda n: {"name": f"g{n}", "deviceName": "a/b"}),
    "host-devices": _many("domain.devices.hostDevices", lambda n: {"name": f"g{n}", "deviceName": "a/b"}),
    "inputs": _many("domain.devices.inputs", lambda n: {"name": f"g{n}", "type": "tablet", "bus": "usb"}),
    "tolerations": _many("tolerations", lambda n: {"key": f"k{n}", "operator": "Exists"}),
    "credentials": _many(
        "accessCredentials", lambda n: {"userPassword": {"source": {"secret": {"secretName": f"{n}"}}}}
    ),
    "unknown": _many("nonsense", lambda n: {"name": f"d{n}"}),
}

TARGET = Target("webhooks", maybe_noisy(reviews()), door, examples=900, families=FAMILIES, may_keep=1 << 20)
