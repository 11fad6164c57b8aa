"""Gives running containers the resources that their Pod asks for now."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from virt_core.apis.pods import Container, Pod
from virt_core.runtime.logs import get_logger
from virt_local.node.oci.spec import limits_of
from virt_local.node.pods import resize
from virt_local.node.pods.bundles import Parts
from virt_local.node.pods.ports import PodSource
from virt_local.node.pods.state import PodState
from virt_local.node.pods.view import has_ended
from virt_local.node.runtime.records import ContainerRecord
from virt_local.node.runtime.runc import RuncError

log = get_logger(__name__)

#: How often a change is looked at again for which there was no room.
RETRY = timedelta(seconds=5)


class Resizer:
    def __init__(self, parts: Parts, source: PodSource) -> None:
        self._parts, self._source = parts, source

    def look(self, pod: Pod, state: PodState, now: datetime) -> datetime | None:
        """When to look again, if something does not have what it should."""
        due = [(c, record) for c in pod.spec.containers if (record := self._due(c, state)) is not None]
        state.resize = resize.decide(pod, self._others(pod), self._allocatable()) if due else None
        if state.resize is None:
            for container, record in due:
                self._give(pod, state, container, record)
        return now + RETRY if state.resize is not None else None

    def _due(self, container: Container, state: PodState) -> ContainerRecord | None:
        record = state.current(container.name)
        if record is None or not record.running:
            return None
        if record.resources is None:
            # Of a former release: it was started with what its Pod says.
            record.resources = container.resources
        return record if resize.differs(container.resources, record.resources) else None

    def _give(self, pod: Pod, state: PodState, container: Container, record: ContainerRecord) -> None:
        containers = self._parts.containers
        try:
            containers.runc.update(record.id, limits_of(container.resources))
        except RuncError as error:
            state.resize = resize.Held(resize.IN_PROGRESS, "Error", str(error))
            self._parts.events.event(pod, "Warning", "ResizeError", str(error))
            return
        record.resources = container.resources
        containers.save(state.uid, record)
        log.info("a running container has other resources", pod=pod.metadata.name, container=container.name)

    def _others(self, pod: Pod) -> list[Pod]:
        found = [self._source.get(uid) for uid in self._source.uids() if uid != pod.metadata.uid]
        return [other for other in found if other is not None and not has_ended(other)]

    def _allocatable(self) -> dict[str, Decimal]:
        facts = self._parts.facts
        return {"cpu": Decimal(facts.cpus), "memory": Decimal(facts.memory)}
