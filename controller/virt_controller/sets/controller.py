"""What the controllers of replica sets and pools have in common: caches, expectations, adoption, one status write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from virt_controller.sets.members import (
    CONTROLLER_INDEX,
    ORPHAN_INDEX,
    adoptable,
    controller_of,
    release,
    take_over,
)
from virt_core.apis import names
from virt_core.apis.facts import is_terminating
from virt_core.apis.meta import LabelSelector
from virt_core.apis.selectors import chooses
from virt_core.kube.client import KubeClient, KubeObject
from virt_core.kube.errors import ApiError, NotFound
from virt_core.kube.expectations import Expectations
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.store import key_of
from virt_core.kube.workqueue import WorkQueue
from virt_core.kube.writes import OwnWrites, write_status
from virt_core.runtime.clock import Clock

S = TypeVar("S", bound=KubeObject)
M = TypeVar("M", bound=KubeObject)


class SetController(Generic[S, M]):
    """`S` is the kind of the set, `M` that of its members."""

    #: Whether it takes over what its selector matches and nobody owns.
    adopts = True

    def __init__(
        self,
        client: KubeClient,
        *,
        queue: WorkQueue,
        sets: Informer[S],
        members: Informer[M],
        recorder: EventRecorder,
        clock: Clock,
        kind: str,
    ) -> None:
        self.client, self.queue, self.recorder, self.clock = client, queue, recorder, clock
        self.sets, self.members, self._kind = sets, members, kind
        self.expectations = Expectations(clock)
        self.writes: OwnWrites[S] = OwnWrites()
        sets.add_handler(self._set_changed, lambda _old, new: self._set_changed(new), self._set_gone)
        members.add_handler(self._added, self._updated, self._gone)

    def owned(self, owner: S, selector: LabelSelector) -> list[M]:
        """The set's members, oldest first, with those it takes over just now and without those it lets go."""
        found = self.members.by_index(CONTROLLER_INDEX, owner.metadata.uid)
        if not is_terminating(owner):
            for stranger in [obj for obj in found if not chooses(selector, obj.metadata.labels)]:
                release(self.client, owner, stranger)
            found = [obj for obj in found if chooses(selector, obj.metadata.labels)]
            orphans = self.members.by_index(ORPHAN_INDEX, owner.metadata.namespace) if self.adopts else []
            found += [take_over(self.client, owner, obj) for obj in adoptable(selector, orphans)]
        return sorted(found, key=lambda o: (o.metadata.creation_timestamp or "", o.metadata.name))

    def create(self, owner: S, obj: M) -> None:
        key = key_of(owner)
        self.expectations.expect_creations(key)
        try:
            created = self.client.create(obj)
        except ApiError as error:
            self.expectations.creation_observed(key)
            self.recorder.event(owner, names.EVENT_WARNING, names.EVENT_FAILED_CREATE, str(error))
            raise
        self.recorder.event(owner, names.EVENT_NORMAL, names.EVENT_SUCCESSFUL_CREATE, f"made {created.metadata.name}")

    def delete(self, owner: S, objects: Sequence[M]) -> None:
        key = key_of(owner)
        for obj in objects:
            meta = obj.metadata
            self.expectations.expect_deletions(key, [meta.uid])
            try:
                self.client.delete(type(obj), meta.name, meta.namespace, uid=meta.uid)
            except NotFound:
                self.expectations.deletion_observed(key, meta.uid)
            except ApiError as error:
                self.expectations.deletion_observed(key, meta.uid)
                self.recorder.event(owner, names.EVENT_WARNING, names.EVENT_FAILED_DELETE, str(error))
                raise
            else:
                self.recorder.event(owner, names.EVENT_NORMAL, names.EVENT_SUCCESSFUL_DELETE, f"deleted {meta.name}")

    def write(self, stored: S, wanted: S) -> None:
        try:
            written = write_status(self.client, stored, wanted)
        except NotFound:
            return
        if written is not None:
            self.writes.remember(written)

    def _set_changed(self, obj: S) -> None:
        self.queue.add(key_of(obj))

    def _set_gone(self, obj: S) -> None:
        self.writes.forget(obj.metadata.uid)
        self.queue.add(key_of(obj))

    def _owner_key(self, obj: KubeObject) -> str:
        ref = controller_of(obj)
        return f"{obj.metadata.namespace}/{ref.name}" if ref is not None and ref.kind == self._kind else ""

    def _added(self, obj: M) -> None:
        if key := self._owner_key(obj):
            self.expectations.creation_observed(key)
        self._changed(obj)

    def _updated(self, old: M, new: M) -> None:
        if (before := self._owner_key(old)) and before != self._owner_key(new):
            self.queue.add(before)
        self._changed(new)

    def _changed(self, obj: M) -> None:
        if key := self._owner_key(obj):
            if is_terminating(obj):
                self.expectations.deletion_observed(key, obj.metadata.uid)
            self.queue.add(key)
        elif controller_of(obj) is None:
            self._wake_namespace(obj)

    def _wake_namespace(self, obj: M) -> None:
        """It may be taken over by any set of its namespace."""
        for owner in self.sets.list():
            selector: Any = getattr(owner, "spec").selector  # noqa: B009 - both kinds have one, no protocol says so
            if owner.metadata.namespace == obj.metadata.namespace and adoptable(selector, [obj]):
                self.queue.add(key_of(owner))

    def _gone(self, obj: M) -> None:
        if key := self._owner_key(obj):
            self.expectations.deletion_observed(key, obj.metadata.uid)
            self.queue.add(key)
