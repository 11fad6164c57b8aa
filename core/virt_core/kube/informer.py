"""A live copy of a kind's objects: list, then watch, then list again when the server has forgotten our version.

It never loses a delete: what is gone after a new list is reported from the copy, and an object that was deleted and
made again under the same name while we were away is reported as both. Handlers run in the informer's own thread, one at
a time, so they must be quick: put a key into a work queue.
"""

from __future__ import annotations

import builtins
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from virt_core.kube.client import KubeClient, KubeObject, ObjectList
from virt_core.kube.errors import ApiError, Gone, NotFound, Unreachable
from virt_core.kube.store import Indexer, Store, key_of
from virt_core.kube.watch import Watch, WatchEvent
from virt_core.runtime.clock import Clock, SystemClock
from virt_core.runtime.logs import get_logger

T = TypeVar("T", bound=KubeObject)

_FIRST_BACKOFF_S = 0.2
_MAX_BACKOFF_S = 15.0
#: How often a kind that the cluster does not have is looked for: whoever installs it expects it to work soon.
_ABSENT_S = 20.0
#: A watch that ends sooner than this without an event counts as a failure, or a broken server would keep us spinning.
_SHORT_WATCH_S = 1.0


@dataclass(slots=True)
class _Handler(Generic[T]):
    on_add: Callable[[T], object] | None
    on_update: Callable[[T, T], object] | None
    on_delete: Callable[[T], object] | None


class Informer(Generic[T]):
    def __init__(  # noqa: PLR0917 - the selectors follow the client's list
        self,
        client: KubeClient,
        cls: type[T],
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, Indexer[T]] | None = None,
        transform: Callable[[T], T] | None = None,
        clock: Clock | None = None,
        optional: bool = False,
    ) -> None:
        """`optional`: the cluster may not have the kind; then there are no objects, and we look again now and then."""
        self._client, self._optional = client, optional
        self._cls = cls
        self._namespace, self._labels, self._fields = namespace, label_selector, field_selector
        self._transform = transform
        self._clock = clock or SystemClock()
        self._log = get_logger(__name__, kind=cls.__name__)
        self._store: Store[T] = Store(indexers)
        self._handlers: list[_Handler[T]] = []
        self._dispatch_lock = threading.Lock()
        self._synced = threading.Event()
        self._version = ""
        self._failures = 0
        self._watch: Watch[T] | None = None

    def add_handler(
        self,
        on_add: Callable[[T], object] | None = None,
        on_update: Callable[[T, T], object] | None = None,
        on_delete: Callable[[T], object] | None = None,
    ) -> None:
        """A handler that comes late first hears of everything that is already here."""
        handler = _Handler(on_add, on_update, on_delete)
        with self._dispatch_lock:
            self._handlers.append(handler)
            for obj in self._store.list():
                self._call(on_add, obj)

    def has_synced(self) -> bool:
        return self._synced.is_set()

    def get(self, key: str) -> T | None:
        return self._store.get(key)

    def list(self) -> list[T]:
        return self._store.list()

    def by_index(self, name: str, value: str) -> builtins.list[T]:
        return self._store.by_index(name, value)

    def run(self, stop: threading.Event) -> None:
        """Blocks until the stop."""
        closer = threading.Thread(target=self._close_on, args=(stop,), name=f"{self._cls.__name__}-closer", daemon=True)
        closer.start()
        while not stop.is_set():
            try:
                if not self._version:
                    self._relist()
                self._follow(stop)
            except ApiError as error:
                self._recover(error, stop)
        closer.join()

    def _close_on(self, stop: threading.Event) -> None:
        """Ends a blocked read: a thread in `recv` does not hear of an Event."""
        stop.wait()
        if watch := self._watch:
            watch.close()

    def _recover(self, error: ApiError, stop: threading.Event) -> None:
        """After a broken connection the watch resumes where it was; after anything else we list again."""
        if stop.is_set():
            return
        if not isinstance(error, Unreachable):
            self._version = ""
        if self._optional and isinstance(error, NotFound):
            with self._dispatch_lock:
                self._replace_all(ObjectList([], ""))
            self._synced.set()
            self._clock.wait(stop, _ABSENT_S * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load, guards nothing
            return
        self._failures += 1
        if isinstance(error, Gone):
            self._log.info("the watch fell too far behind, listing again")
        elif self._failures in (1, 10, 100):
            self._log.warning("the watch broke", error=str(error), failures=self._failures)
        delay = min(_FIRST_BACKOFF_S * 2 ** min(self._failures - 1, 10), _MAX_BACKOFF_S)
        self._clock.wait(stop, delay * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, guards nothing

    def _relist(self) -> None:
        listed = self._client.list(self._cls, self._namespace, self._labels, self._fields, skip_invalid=True)
        with self._dispatch_lock:
            self._replace_all(listed)
        self._version = listed.resource_version
        self._synced.set()

    def _replace_all(self, listed: ObjectList[T]) -> None:
        gone = self._store.keys()
        for obj in listed.items:
            gone.discard(key_of(obj))
            self._upsert(obj)
        for key in gone:
            self._remove(key)

    def _follow(self, stop: threading.Event) -> None:
        started = self._clock.monotonic()
        events = 0
        with self._open_watch() as watch:
            self._watch = watch
            if stop.is_set():
                return
            for event in watch:
                events += 1
                self._failures = 0
                self._apply(event)
        if not events and self._clock.monotonic() - started < _SHORT_WATCH_S and not stop.is_set():
            raise Unreachable("the server ended the watch at once")

    def _open_watch(self) -> Watch[T]:
        return self._client.watch(
            self._cls,
            self._namespace,
            resource_version=self._version,
            label_selector=self._labels,
            field_selector=self._fields,
            skip_invalid=True,
        )

    def _apply(self, event: WatchEvent[T]) -> None:
        if event.object is not None:
            with self._dispatch_lock:
                if event.type == "DELETED":
                    self._remove(key_of(event.object), event.object)
                else:
                    self._upsert(event.object)
        if event.resource_version:
            self._version = event.resource_version

    def _upsert(self, obj: T) -> None:
        if self._transform:
            obj = self._transform(obj)
        old = self._store.get(key_of(obj))
        if old is not None and old.metadata.uid != obj.metadata.uid:
            self._remove(key_of(obj))
            old = None
        self._store.put(obj)
        if old is None:
            self._each(lambda handler: self._call(handler.on_add, obj))
        elif old.metadata.resource_version != obj.metadata.resource_version:
            self._each(lambda handler: self._call(handler.on_update, old, obj))

    def _remove(self, key: str, last: T | None = None) -> None:
        """`last` is the object as the DELETED event shows it: newer than our copy, with its final status."""
        old = self._store.remove(key)
        if old is None:
            return
        final = self._transform(last) if last is not None and self._transform else last
        self._each(lambda handler: self._call(handler.on_delete, final or old))

    def _each(self, call: Callable[[_Handler[T]], None]) -> None:
        for handler in self._handlers:
            call(handler)

    def _call(self, function: Callable[..., object] | None, *args: T) -> None:
        if function is None:
            return
        try:
            function(*args)
        except Exception:
            # One bad handler must not stop the copy for all others.
            self._log.exception("an informer's handler failed", object=key_of(args[-1]))


def wait_for_sync(
    stop: threading.Event, *informers: Informer[KubeObject] | Informer[T], timeout_s: float = 60.0
) -> bool:
    """Waits until every informer has its first list. False: stopped, or the time is over."""
    clock = SystemClock()
    deadline = clock.monotonic() + timeout_s
    while not all(informer.has_synced() for informer in informers):
        if stop.is_set() or clock.monotonic() > deadline:
            return False
        clock.wait(stop, 0.02)
    return True
