"""From the names in a request to the run of a container, or to an error as the API writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aiohttp import web

from virt_core.apis.base import encode
from virt_core.apis.meta import Status
from virt_core.apis.pods import Container, Pod
from virt_local.node.pods.state import PodState
from virt_local.node.runtime.records import ContainerRecord


class PodDirectory(Protocol):
    def find(self, namespace: str, name: str) -> Pod | None: ...

    def all(self) -> list[Pod]: ...


def refuse(code: int, reason: str, message: str) -> web.HTTPException:
    """An error whose body kubectl can read."""
    status = Status(status="Failure", code=code, reason=reason, message=message)
    body = b'{"apiVersion":"v1","kind":"Status",' + encode(status)[1:]
    kinds: dict[int, type[web.HTTPException]] = {400: web.HTTPBadRequest, 403: web.HTTPForbidden, 404: web.HTTPNotFound}
    return kinds[code](text=body.decode(), content_type="application/json")


@dataclass(frozen=True)
class Found:
    pod: Pod
    container: Container
    record: ContainerRecord
    state: PodState


class Lookup:
    def __init__(
        self,
        pods: PodDirectory,
        state: Callable[[str], PodState | None],
        bundle: Callable[[str, ContainerRecord], Path],
    ) -> None:
        self._pods = pods
        self._state = state
        self._bundle = bundle

    def pods(self) -> list[Pod]:
        return self._pods.all()

    def pod(self, request: web.Request) -> tuple[Pod, PodState | None]:
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        pod = self._pods.find(namespace, name)
        if pod is None:
            raise refuse(404, "NotFound", f'pods "{name}" not found on this node')
        return pod, self._state(pod.metadata.uid)

    def container(self, request: web.Request, *, previous: bool = False) -> Found:
        pod, state = self.pod(request)
        wanted, name = request.match_info["container"], pod.metadata.name
        container = next((c for c in (*pod.spec.init_containers, *pod.spec.containers) if c.name == wanted), None)
        if container is None:
            raise refuse(404, "NotFound", f"container {wanted} not found in pod {name}")
        runs = state.runs.get(wanted, []) if state is not None else []
        if previous and len(runs) < 2:
            raise refuse(400, "BadRequest", f'previous terminated container "{wanted}" in pod "{name}" not found')
        if not runs or state is None:
            waiting = state.waiting.get(wanted) if state is not None else None
            why = waiting.reason if waiting is not None else "ContainerCreating"
            message = f'container "{wanted}" in pod "{name}" is waiting to start: {why}'
            raise refuse(400, "BadRequest", message)
        return Found(pod, container, runs[-2] if previous else runs[-1], state)

    def running(self, request: web.Request) -> Found:
        found = self.container(request)
        if not found.record.running:
            raise refuse(400, "BadRequest", f'container "{found.container.name}" is not running')
        return found

    def bundle(self, found: Found) -> Path:
        return self._bundle(found.state.uid, found.record)
