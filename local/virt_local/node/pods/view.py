"""One container as the decisions see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from virt_core.apis.pods import Container, Pod
from virt_local.node.runtime.records import ContainerRecord

POD_PHASES_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Waiting:
    """Why a container is not started, and when it is tried again (None: when something tells us)."""

    reason: str
    message: str = ""
    until: datetime | None = None
    tries: int = 0


@dataclass(frozen=True)
class ContainerView:
    current: ContainerRecord | None = None
    previous: ContainerRecord | None = None
    waiting: Waiting | None = None
    started: bool = True
    ready: bool = True

    @property
    def running(self) -> bool:
        return self.current is not None and self.current.running

    @property
    def exited(self) -> bool:
        return self.current is not None and self.current.exited


Views = dict[str, ContainerView]


def is_sidecar(container: Container) -> bool:
    """An init container that keeps running beside the others."""
    return container.restart_policy == "Always"


def view_of(views: Views, container: Container) -> ContainerView:
    return views.get(container.name, ContainerView())


def has_ended(pod: Pod) -> bool:
    return pod.status.phase in POD_PHASES_ENDED
