"""What an API server's own counters say."""

from __future__ import annotations

import re

_CHANGES = {"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION", "CREATE", "UPDATE"}


def granted_writes(text: str) -> dict[str, int]:
    """Requests that changed something and were granted, by resource, out of the text of /metrics. Dry runs are none."""
    return _writes(text, "2")


def conflicts(text: str) -> dict[str, int]:
    """Changes that were refused because somebody else had changed the object, by resource."""
    return _writes(text, "409")


def _writes(text: str, code: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for line in text.splitlines():
        if not line.startswith("apiserver_request_total{"):
            continue
        labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
        if labels.get("verb", "").upper() not in _CHANGES or labels.get("dry_run"):
            continue
        if labels.get("code", "2").startswith(code):
            kind = labels.get("resource", "")
            counts[kind] = counts.get(kind, 0) + int(float(line.rsplit(" ", 1)[1]))
    return counts


def spent(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    return {kind: after[kind] - before.get(kind, 0) for kind in after if after[kind] > before.get(kind, 0)}
