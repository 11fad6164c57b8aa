"""A started server in a temporary directory, and a small client that calls its verbs without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from virt_local.apiserver.hooks import ADMIN
from virt_local.apiserver.request import parse_target
from virt_local.apiserver.server import Server
from virt_local.apiserver.verbs.call import Answer, Call, ListAnswer
from virt_local.apiserver.verbs.dispatch import verb_of

Object = dict[str, Any]


class Client:
    """Sends a method and a path to the verbs, as the HTTP layer would."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.warnings: list[str] = []

    async def send(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", **query: str
    ) -> Object:
        target = parse_target(method, path, query)
        kind = self.server.catalog.find(target.group, target.version, target.resource)
        assert kind is not None, f"{path} is not served"
        data = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        call = Call(self.server, target, kind, ADMIN, query, data, content_type, "test/1")
        answer = await verb_of(call)(call)
        self.warnings = call.warnings
        if isinstance(answer, Answer):
            return answer.object(kind)
        assert isinstance(answer, ListAnswer)
        metadata = {"resourceVersion": str(answer.revision), "continue": answer.next_token}
        return {"metadata": metadata, "items": [kind.view(record.object()) for record in answer.records]}


Scenario = Callable[[Client], Coroutine[Any, Any, None]]


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Scenario], None]:
    """Runs a scenario against a fresh server. Calling it again finds the same data, as after a restart."""

    async def session(scenario: Scenario) -> None:
        server = Server.open(tmp_path / "state.db", root_ca="PEM")
        await server.start()
        try:
            async with asyncio.timeout(20):
                await scenario(Client(server))
        finally:
            await server.close()

    return lambda scenario: asyncio.run(session(scenario))


def pod(name: str = "web", **spec: Any) -> Object:
    body = {"containers": [{"name": "c", "image": "busybox:1"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
