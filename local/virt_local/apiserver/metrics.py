"""What the API server counts. The benchmark reads writes per resource from here."""

from __future__ import annotations

from virt_core.runtime.metrics import Counter, Gauge, Histogram

REQUESTS = Counter(
    "apiserver_request_total", "Answered requests.", ("verb", "group", "version", "resource", "subresource", "code")
)
SECONDS = Histogram("apiserver_request_duration_seconds", "Time to answer, watches excepted.", ("verb", "resource"))
WRITES = Counter("virt_local_object_writes_total", "Stored changes of objects.", ("resource", "operation"))
COMMITS = Histogram("virt_local_commit_seconds", "Time from a checked write until it is on disk and visible.")
OBJECTS = Gauge("virt_local_objects", "Stored objects.", ("resource",))
WATCHERS = Gauge("virt_local_watchers", "Open watches.")
REVISION = Gauge("virt_local_revision", "The newest resourceVersion.")


def observe_commit(_batch: int, seconds: float) -> None:
    COMMITS.observe(seconds)
