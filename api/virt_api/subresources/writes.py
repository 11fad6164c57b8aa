"""How virt-api writes: on the version that it has read, dry where that is asked for, and again when it lost a race."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from virt_api.problems import LostRace
from virt_api.subresources.call import DRY_RUN_ALL
from virt_core.kube.patch import JsonPatch, MergePatch, Patch

_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class DryPatch:
    """A patch that the API server checks and does not store."""

    inner: Patch

    @property
    def content_type(self) -> str:
        return self.inner.content_type

    def body(self) -> bytes:
        return self.inner.body()

    def query(self) -> dict[str, str]:
        return {**self.inner.query(), "dryRun": DRY_RUN_ALL}


def patch_for(obj: Any, change: Mapping[str, Any] | JsonPatch, dry_run: list[str]) -> Patch:
    """A map becomes a merge patch that holds only for the version of `obj`."""
    patch: Patch = change if isinstance(change, JsonPatch) else _guarded(obj, change)
    return DryPatch(patch) if DRY_RUN_ALL in dry_run else patch


def _guarded(obj: Any, change: Mapping[str, Any]) -> MergePatch:
    return MergePatch({"metadata": {"resourceVersion": obj.metadata.resource_version}, **change})


async def again_on_conflict(attempt: Callable[[], Awaitable[None]]) -> None:
    """Only a lost race is tried again: a Problem 409 that is our own judgement stands."""
    for remaining in range(_ATTEMPTS - 1, -1, -1):
        try:
            await attempt()
            return
        except LostRace:
            if not remaining:
                raise
