"""The few questions that virt-api asks the API server. The client is synchronous, so they run on a few threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from virt_core.apis.auth import SubjectAccessReview, TokenReview
from virt_core.apis.nodes import Node
from virt_core.apis.vmi import VirtualMachineInstance

T = TypeVar("T")

_THREADS = 4


class Client(Protocol):
    """What we use of KubeClient."""

    def get(self, cls: type[Any], name: str, namespace: str = "") -> Any: ...

    def create(self, obj: Any) -> Any: ...

    def raw(self, method: str, path: str, *, timeout_s: float | None = None) -> bytes: ...


class Kube:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._pool = ThreadPoolExecutor(_THREADS, "kube")

    async def vmi(self, namespace: str, name: str) -> VirtualMachineInstance:
        """Raises ApiError."""
        return await self._run(lambda: self._client.get(VirtualMachineInstance, name, namespace))

    async def node(self, name: str) -> Node:
        """Raises ApiError."""
        return await self._run(lambda: self._client.get(Node, name))

    async def review_token(self, review: TokenReview) -> TokenReview:
        return await self._run(lambda: self._client.create(review))

    async def review_access(self, review: SubjectAccessReview) -> SubjectAccessReview:
        return await self._run(lambda: self._client.create(review))

    async def version(self) -> bytes:
        """The API server's version document: shows that it answers."""
        return await self._run(lambda: self._client.raw("GET", "/version", timeout_s=5.0))

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)
