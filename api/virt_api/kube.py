"""The few questions that virt-api asks the API server. The client is synchronous, so they run on a few threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar, cast

from virt_core.apis.auth import SubjectAccessReview, TokenReview
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.export import VirtualMachineExport
from virt_core.apis.migration import VirtualMachineInstanceMigration
from virt_core.apis.nodes import Namespace, Node
from virt_core.apis.pods import Pod
from virt_core.apis.policy import MigrationPolicy
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.instancetype import expand_vm
from virt_core.kube.client import KubeClient
from virt_core.kube.patch import Patch
from virt_core.kube.typelookup import KubeLookup

T = TypeVar("T")

_THREADS = 4


class Client(Protocol):
    """What we use of KubeClient."""

    def get(self, cls: type[Any], name: str, namespace: str = "") -> Any: ...

    def create(self, obj: Any, *, dry_run: bool = False) -> Any: ...

    def list(self, cls: type[Any]) -> Any: ...

    def patch(self, cls: type[Any], name: str, namespace: str, patch: Patch, *, subresource: str = "") -> Any: ...

    def raw(self, method: str, path: str, *, timeout_s: float | None = None) -> bytes: ...


class Kube:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._pool = ThreadPoolExecutor(_THREADS, "kube")

    async def vmi(self, namespace: str, name: str) -> VirtualMachineInstance:
        """Raises ApiError."""
        return await self._run(lambda: self._client.get(VirtualMachineInstance, name, namespace))

    async def vm(self, namespace: str, name: str) -> VirtualMachine:
        """Raises ApiError."""
        return await self._run(lambda: self._client.get(VirtualMachine, name, namespace))

    async def claim(self, namespace: str, name: str) -> PersistentVolumeClaim:
        """Raises ApiError."""
        return await self._run(lambda: self._client.get(PersistentVolumeClaim, name, namespace))

    async def export(self, namespace: str, name: str) -> VirtualMachineExport:
        """Raises ApiError."""
        return await self._run(lambda: self._client.get(VirtualMachineExport, name, namespace))

    async def data_volume(self, namespace: str, name: str) -> DataVolume:
        """Raises ApiError."""
        return await self._run(lambda: self._client.get(DataVolume, name, namespace))

    async def pod(self, namespace: str, name: str) -> Pod:
        """Raises ApiError."""
        return await self._run(lambda: self._client.get(Pod, name, namespace))

    async def patch(self, obj: T, patch: Patch, *, subresource: str = "") -> T:
        """Raises ApiError."""
        meta = obj.metadata  # type: ignore[attr-defined]
        return await self._run(
            lambda: self._client.patch(type(obj), meta.name, meta.namespace, patch, subresource=subresource)
        )

    async def expand(self, vm: VirtualMachine, default_interface: str) -> VirtualMachine:
        """Raises ApiError, and what expand_vm raises."""
        lookup = KubeLookup(cast(KubeClient, self._client))
        return await self._run(lambda: expand_vm(vm, lookup, default_interface))

    async def node(self, name: str) -> Node:
        """Raises ApiError."""
        return await self._run(lambda: self._client.get(Node, name))

    async def create_migration(
        self, job: VirtualMachineInstanceMigration, *, dry_run: bool
    ) -> VirtualMachineInstanceMigration:
        """Raises ApiError."""
        return await self._run(lambda: self._client.create(job, dry_run=dry_run))

    async def migration_policies(self) -> list[MigrationPolicy]:
        """Raises ApiError."""
        return await self._run(lambda: self._client.list(MigrationPolicy).items)

    async def namespace(self, name: str) -> Namespace:
        """Raises ApiError."""
        return await self._run(lambda: self._client.get(Namespace, name))

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
