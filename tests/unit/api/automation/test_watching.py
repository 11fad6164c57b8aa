"""One stream out of many watches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from virt_api.automation import watching
from virt_api.automation.objects import VMI
from virt_api.automation.userapi import Call
from virt_api.automation.watching import Collection, changes
from virt_core.kube.errors import Gone, Undecodable, Unreachable
from virt_protos.automation.v1 import automation_pb2 as pb


class FakeUserApi:
    """Each watch takes the next of `watches`: chunks of bytes, or the failure that it ends with."""

    def __init__(self, *watches: list[bytes | Exception], pages: list[dict[str, Any]] | None = None) -> None:
        self._watches = list(watches)
        self._pages = pages or []
        self.calls: list[Call] = []

    async def send(self, token: str, call: Call) -> bytes:
        self.calls.append(call)
        return json.dumps(self._pages.pop(0)).encode()

    async def stream(self, token: str, call: Call, *, quiet_s: float) -> AsyncGenerator[bytes, None]:
        self.calls.append(call)
        for chunk in self._watches.pop(0):
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk

    @property
    def versions(self) -> list[str]:
        return [call.query["resourceVersion"] for call in self.calls if "watch" in call.query]


def document(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}}


def line(type_: str, name: str, version: str) -> bytes:
    return json.dumps({"type": type_, "object": document(name, version)}).encode() + b"\n"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_RETRY_S", 0)


def collect(api: FakeUserApi, count: int, version: str = "") -> list[tuple[int, str, str]]:
    async def run() -> list[tuple[int, str, str]]:
        found: list[tuple[int, str, str]] = []
        events = changes(api, "t", Collection(VMI), version)  # type: ignore[arg-type]
        async for event in events:
            found.append((event.type, event.object.name, event.resource_version))
            if len(found) == count:
                break
        await events.aclose()
        return found

    return asyncio.run(run())


def test_events_are_put_together_from_chunks() -> None:
    whole = line("ADDED", "a", "2") + line("MODIFIED", "b", "3")
    api = FakeUserApi([whole[:10], whole[10:70], whole[70:] + b"\n"])
    assert [(name, version) for _, name, version in collect(api, 2, "1")] == [("a", "2"), ("b", "3")]


def test_all_pages_come_before_the_bookmark() -> None:
    pages = [
        {"items": [document("a", "1")], "metadata": {"continue": "more", "resourceVersion": "9"}},
        {"items": [document("b", "2")], "metadata": {"resourceVersion": "9"}},
    ]
    api = FakeUserApi([line("DELETED", "b", "10")], pages=pages)
    found = collect(api, 4)
    assert [name for _, name, _ in found] == ["a", "b", "", "b"]
    assert found[2] == (pb.WatchEvent.TYPE_BOOKMARK, "", "9")
    assert api.calls[1].query["continue"] == "more"
    assert api.versions == ["9"]


def test_a_short_absence_is_bridged_from_the_last_version() -> None:
    away = Unreachable("away")
    api = FakeUserApi([line("ADDED", "a", "2"), away], [away], [], [line("ADDED", "b", "3")])
    assert [name for _, name, _ in collect(api, 2, "1")] == ["a", "b"]
    assert api.versions == ["1", "2", "2", "2"]


def test_a_long_absence_is_not() -> None:
    api = FakeUserApi(*[[Unreachable("away")] for _ in range(20)])
    with pytest.raises(Unreachable):
        collect(api, 1, "1")
    assert len(api.calls) == watching._RETRIES + 1


def test_what_is_too_old_or_broken_is_told() -> None:
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
    with pytest.raises(Gone, match="too old"):
        collect(FakeUserApi([json.dumps(gone).encode() + b"\n"]), 1, "1")
    with pytest.raises(Undecodable):
        collect(FakeUserApi([b"nonsense\n"]), 1, "1")
