"""Events for people: what happened to an object, written beside the work and never in its way.

`event` only puts a note into a bounded queue; one thread writes. The same thing happening again raises the count of the
Event that is there. When the API is slower than we talk, notes are dropped and counted: an Event is a hint, no record.
"""

from __future__ import annotations

import queue
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from virt_core.apis.meta import ObjectMeta
from virt_core.apis.nodes import Event, EventSource
from virt_core.apis.podparts import ObjectReference
from virt_core.apis.registry import resource_of
from virt_core.kube.client import KubeClient, KubeObject
from virt_core.kube.errors import ApiError, NotFound
from virt_core.kube.patch import MergePatch
from virt_core.runtime.clock import Clock, SystemClock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.metrics import Counter
from virt_core.runtime.times import rfc3339

log = get_logger(__name__)

DROPPED = Counter("virt_events_dropped_total", "Events not written: the queue was full or the API failed.")

NORMAL = "Normal"
WARNING = "Warning"

_QUEUE_SIZE = 1000
_KNOWN = 2000
_MAX_MESSAGE = 1024
_FLUSH_S = 5.0


@dataclass(frozen=True, slots=True)
class _Note:
    involved: tuple[str, str, str, str, str]  # apiVersion, kind, namespace, name, uid
    type: str
    reason: str
    message: str


@dataclass(slots=True)
class _Written:
    name: str
    namespace: str
    count: int


class EventRecorder:
    """`run(stop)` may be a thread of the supervisor; otherwise the first event starts a thread of its own."""

    def __init__(
        self,
        client: KubeClient,
        component: str,
        host: str = "",
        *,
        clock: Clock | None = None,
        queue_size: int = _QUEUE_SIZE,
    ) -> None:
        self._client = client
        self._source = EventSource(component=component, host=host)
        self._clock = clock or SystemClock()
        self._notes: queue.Queue[_Note | None] = queue.Queue(queue_size)
        self._written: OrderedDict[_Note, _Written] = OrderedDict()
        self._lock = threading.Lock()
        self._running = False

    def event(self, obj: KubeObject, type: str, reason: str, message: str) -> None:
        """Never blocks, never raises for the API's sake."""
        resource = resource_of(_class_of(obj))
        api_version = f"{resource.group}/{resource.version}" if resource.group else resource.version
        meta = obj.metadata
        involved = (api_version, resource.kind, meta.namespace, meta.name, meta.uid)
        try:
            self._notes.put_nowait(_Note(involved, type, reason, message[:_MAX_MESSAGE]))
        except queue.Full:
            DROPPED.inc()
            return
        self._ensure_thread()

    def run(self, stop: threading.Event) -> None:
        """Writes until the stop, then what is left in the queue, for a few seconds at most."""
        with self._lock:
            self._running = True
        while not stop.is_set():
            self._write_next(0.5)
        deadline = self._clock.monotonic() + _FLUSH_S
        while self._clock.monotonic() < deadline and self._write_next(0.0):
            pass

    def flush(self) -> None:
        """Writes what is queued, in the caller's thread. For tests and short-lived programs."""
        while self._write_next(0.0):
            pass

    def _ensure_thread(self) -> None:
        with self._lock:
            if self._running:
                return
            self._running = True
        threading.Thread(target=self.run, args=(threading.Event(),), name="events", daemon=True).start()

    def _write_next(self, wait_s: float) -> bool:
        try:
            note = self._notes.get(timeout=wait_s) if wait_s else self._notes.get_nowait()
        except queue.Empty:
            return False
        if note is not None:
            self._write(note)
        return True

    def _write(self, note: _Note) -> None:
        try:
            known = self._written.get(note)
            if known is None or not self._count_up(known):
                known = self._create(note)
        except ApiError as error:
            DROPPED.inc()
            log.warning("could not write an event", reason=note.reason, object=note.involved[3], error=str(error))
            return
        self._written[note] = known
        self._written.move_to_end(note)
        if len(self._written) > _KNOWN:
            self._written.popitem(last=False)

    def _count_up(self, known: _Written) -> bool:
        """False: the Event has expired meanwhile."""
        patch = MergePatch({"count": known.count + 1, "lastTimestamp": rfc3339(self._clock.now())})
        try:
            self._client.patch(Event, known.name, known.namespace, patch)
        except NotFound:
            return False
        known.count += 1
        return True

    def _create(self, note: _Note) -> _Written:
        api_version, kind, namespace, name, uid = note.involved
        now = rfc3339(self._clock.now())
        where = namespace or "default"
        event = Event(
            metadata=ObjectMeta(name=f"{name[:220]}.{secrets.token_hex(8)}", namespace=where),
            involved_object=ObjectReference(
                api_version=api_version, kind=kind, namespace=namespace, name=name, uid=uid
            ),
            type=note.type,
            reason=note.reason,
            message=note.message,
            source=self._source,
            first_timestamp=now,
            last_timestamp=now,
            count=1,
        )
        self._client.create(event)
        return _Written(event.metadata.name, where, 1)


def _class_of(obj: KubeObject) -> type[Any]:
    return type(obj)
