"""Starts containers, the part of a node's work that people wait for.

What does not depend on one another runs at the same time: the CNI plugins connect the namespace while volumes are made
and runc makes the container; only the start of its program waits for both.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path

from virt_core.apis.pods import Container, Pod
from virt_core.runtime.logs import get_logger
from virt_core.runtime.times import rfc3339_micro
from virt_local.node.images.root import Root
from virt_local.node.images.service import ImageNotReady
from virt_local.node.networks.vocabulary import NetworkError
from virt_local.node.oci.context import ContainerConfigError
from virt_local.node.oci.downward import needs_pod_ip
from virt_local.node.pods.bundles import BundleMaker, Parts
from virt_local.node.pods.decide import next_level
from virt_local.node.pods.state import KEPT_RUNS, PodState
from virt_local.node.pods.view import Waiting
from virt_local.node.runtime.monitor import StartError
from virt_local.node.runtime.records import ContainerRecord
from virt_local.node.volumes.base import VolumeError

log = get_logger(__name__)

_RETRY_MAX_S = 60
_ATTACH_DEADLINE_S = 60.0


class Starter:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._bundles = BundleMaker(parts)

    def start(self, pod: Pod, state: PodState, names: tuple[str, ...], wake: Callable[[], None]) -> None:
        """Starts the named containers. What cannot start leaves its reason in `state.waiting` and never raises."""
        wanted = [c for c in (*pod.spec.init_containers, *pod.spec.containers) if c.name in names]
        roots = self._roots(pod, state, wanted, wake)
        wanted = [container for container in wanted if container.name in roots]
        if not wanted:
            return
        attached: Future[None] | None = None
        made: list[tuple[Container, ContainerRecord]] = []
        try:
            images = self._volume_images(pod, wake)
            attached = self._sandbox(pod, state)
            if state.volumes is None:
                state.volumes = self._parts.volumes.prepare(pod, self._bundles.facts(pod, state), images)
            made = self._make_all(pod, state, wanted, roots, attached)
            _await(attached)
        except (ImageNotReady, VolumeError, NetworkError, OSError) as err:
            self._setup_failed(pod, state, wanted, err)
            self._undo(state, made, attached)
            return
        for container, record in made:
            self._run(pod, state, container, record)

    def _roots(self, pod: Pod, state: PodState, wanted: list[Container], wake: Callable[[], None]) -> dict[str, Root]:
        roots: dict[str, Root] = {}
        for container in wanted:
            try:
                roots[container.name] = self._parts.images.root(
                    container.image, container.image_pull_policy, pod.metadata.uid, wake
                )
            except ImageNotReady as err:
                self._wait(pod, state, container.name, Waiting(err.reason, err.message, err.until))
        return roots

    def _volume_images(self, pod: Pod, wake: Callable[[], None]) -> dict[str, Path]:
        return {
            volume.name: self._parts.images.content(
                volume.image.reference, volume.image.pull_policy, pod.metadata.uid, wake
            )
            for volume in pod.spec.volumes
            if volume.image is not None
        }

    def _sandbox(self, pod: Pod, state: PodState) -> Future[None] | None:
        """The namespace at once, its network in the background."""
        sandboxes = self._parts.sandboxes
        if state.sandbox is not None and sandboxes.usable(state.sandbox):
            return None
        if state.sandbox is not None:
            sandboxes.detach(pod.metadata.uid)
        record = state.sandbox = sandboxes.open(pod)
        state.released = False
        return self._parts.executor.submit(sandboxes.attach, pod, record, list(self._parts.facts.host_ips))

    def _make_all(
        self,
        pod: Pod,
        state: PodState,
        wanted: list[Container],
        roots: dict[str, Root],
        attached: Future[None] | None,
    ) -> list[tuple[Container, ContainerRecord]]:
        made = []
        for container in wanted:
            if needs_pod_ip(container):
                _await(attached)
            record = self._new_record(pod, state, container, roots[container.name])
            try:
                self._bundles.make(pod, state, container, record, roots[container.name])
            except (ContainerConfigError, VolumeError, OSError) as err:
                reason = "CreateContainerError" if isinstance(err, OSError) else "CreateContainerConfigError"
                self._parts.containers.forget(state.uid, record)
                self._wait(pod, state, container.name, self._later(state, container.name, reason, str(err)))
                continue
            except StartError as err:
                self._cannot_start(pod, state, container, record, err)
                continue
            made.append((container, record))
        return made

    def _new_record(self, pod: Pod, state: PodState, container: Container, root: Root) -> ContainerRecord:
        meta, before = pod.metadata, state.current(container.name)
        attempt = before.attempt + 1 if before else 0
        logs = self._parts.layout.logs(meta.namespace, meta.name, meta.uid) / container.name
        return ContainerRecord(
            id=uuid.uuid4().hex,
            name=container.name,
            attempt=attempt,
            level=next_level(before) if before else 0,
            image=container.image,
            image_id=root.image_id,
            stop_signal=root.config.stop_signal or "SIGTERM",
            log_path=str(logs / f"{attempt}.log"),
            created_at=rfc3339_micro(self._parts.clock.now()),
            resources=container.resources,
        )

    def _run(self, pod: Pod, state: PodState, container: Container, record: ContainerRecord) -> None:
        try:
            self._parts.containers.start(state.uid, record)
        except StartError as err:
            self._cannot_start(pod, state, container, record, err)
            return
        self._keep(state, record)
        self._parts.events.event(pod, "Normal", "Started", f"Started container {container.name}")

    def _cannot_start(
        self, pod: Pod, state: PodState, container: Container, record: ContainerRecord, error: StartError
    ) -> None:
        log.warning("a container cannot start", pod=pod.metadata.name, container=container.name, error=str(error))
        self._parts.containers.fail(state.uid, record, str(error))
        self._keep(state, record)
        self._parts.events.event(pod, "Warning", "Failed", f"Error: {error}")

    def _keep(self, state: PodState, record: ContainerRecord) -> None:
        """The new run replaces the oldest one that is kept."""
        state.waiting.pop(record.name, None)
        runs = state.runs.setdefault(record.name, [])
        runs.append(record)
        while len(runs) > KEPT_RUNS:
            self._parts.containers.forget(state.uid, runs.pop(0))

    def _undo(
        self, state: PodState, made: list[tuple[Container, ContainerRecord]], attached: Future[None] | None
    ) -> None:
        """After a failed setup nothing half-made stays, and the next try begins anew."""
        if attached is not None:
            attached.exception(_ATTACH_DEADLINE_S)
        for _, record in made:
            self._parts.containers.forget(state.uid, record)
        if state.sandbox is not None and not state.sandbox.attached:
            try:
                self._parts.sandboxes.detach(state.uid)
            except NetworkError as err:
                log.warning("a failed network setup could not be undone yet", uid=state.uid, error=str(err))
                return
            state.sandbox = None

    def _setup_failed(self, pod: Pod, state: PodState, wanted: list[Container], error: Exception) -> None:
        if isinstance(error, ImageNotReady):
            for container in wanted:
                self._wait(pod, state, container.name, Waiting(error.reason, error.message, error.until))
            return
        reason = "FailedMount" if isinstance(error, VolumeError) else "FailedCreatePodSandBox"
        self._parts.events.event(pod, "Warning", reason, str(error))
        for container in wanted:
            state.waiting[container.name] = self._later(state, container.name, "ContainerCreating", str(error))

    def _wait(self, pod: Pod, state: PodState, name: str, waiting: Waiting) -> None:
        before = state.waiting.get(name)
        state.waiting[name] = waiting
        if waiting.reason != "ContainerCreating" and (before is None or before.reason != waiting.reason):
            self._parts.events.event(pod, "Warning", waiting.reason, waiting.message)

    def _later(self, state: PodState, name: str, reason: str, message: str) -> Waiting:
        """Tried again after 1 s, 2 s … 1 min."""
        before = state.waiting.get(name)
        tries = before.tries + 1 if before is not None and before.reason == reason else 0
        delay = timedelta(seconds=min(2**tries, _RETRY_MAX_S))
        return Waiting(reason, message, self._parts.clock.now() + delay, tries)


def _await(attached: Future[None] | None) -> None:
    if attached is not None:
        attached.result(_ATTACH_DEADLINE_S)
