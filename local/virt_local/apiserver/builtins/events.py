"""Events under their second name: events.k8s.io/v1 shows the same stored objects with other field names."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

# events.k8s.io/v1 name → core/v1 name
_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_BACK = {core: new for new, core in _NAMES.items()}


def event_to_stored(event: Object) -> Object:
    return {_NAMES.get(name, name): value for name, value in event.items()}


def event_from_stored(event: Object) -> Object:
    viewed = {_BACK.get(name, name): value for name, value in event.items()}
    for name in ("reportingController", "reportingInstance"):
        if viewed.get(name) == "":
            del viewed[name]
    return viewed


def stored_field(path: str) -> str:
    """The stored name of a field selector such as `regarding.name`."""
    head, dot, rest = path.partition(".")
    return _NAMES.get(head, head) + dot + rest
