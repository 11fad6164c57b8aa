"""What the Pod runtime needs from the outside. The API implements it in production, plain memory in tests."""

from __future__ import annotations

from typing import Protocol

from virt_core.apis.pods import Pod, PodStatus


class PodSource(Protocol):
    """The Pods that are bound to this node."""

    def get(self, uid: str) -> Pod | None: ...

    def uids(self) -> set[str]: ...


class StatusSink(Protocol):
    """Where the node reports."""

    def publish(self, pod: Pod, status: PodStatus, annotations: dict[str, str] | None = None) -> Pod:
        """Writes a status, and annotations if they are given. Raises ApiError; the caller tries again later."""
        ...

    def delete(self, pod: Pod) -> None:
        """Removes the object of a Pod that has ended here, if it still is that very Pod."""
        ...


class Events(Protocol):
    def event(self, obj: Pod, type: str, reason: str, message: str) -> None: ...
