"""How running machines get a new launcher: the words of spec.workloadUpdateStrategy, and their defaults. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virt_core.apis.kubevirt import KubeVirtWorkloadUpdateStrategy

MIGRATE = "LiveMigrate"
EVICT = "Evict"
METHODS = (MIGRATE, EVICT)

_SIZE, _INTERVAL_S = 10, 60.0
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")


def size_of(strategy: KubeVirtWorkloadUpdateStrategy) -> int:
    """How many machines are evicted at once."""
    size = strategy.batch_eviction_size
    return _SIZE if size is None else max(size, 0)


def interval_of(strategy: KubeVirtWorkloadUpdateStrategy) -> float:
    """Seconds between two batches. Raises ValueError."""
    text = strategy.batch_eviction_interval
    return _INTERVAL_S if text is None else seconds(text)


def seconds(text: str) -> float:
    """Of a duration as Go writes it: `90s`, `1m0s`, `1.5h`. Raises ValueError."""
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration such as 90s, 5m or 1h30m")
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)
