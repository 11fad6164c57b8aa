"""Counters, gauges and histograms in the Prometheus text format. Small, thread safe, no dependency.

Metrics are module-level objects: `RECONCILES = Counter("virt_reconciles_total", "…", ("controller", "result"))`.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import NamedTuple

Labels = tuple[str, ...]

#: Seconds; from a cache hit to a slow boot.
DEFAULT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


#: Labels may come from a caller, who must not fill the memory with them: so many sets of a metric are told apart.
MAX_SERIES = 2000
MAX_LABEL = 128
OTHER = "other"


class Family(NamedTuple):
    """A metric whose samples are found out when somebody looks."""

    name: str
    help: str
    kind: str
    labels: Labels
    samples: Sequence[tuple[Labels, float]]


class Registry:
    def __init__(self) -> None:
        self._metrics: dict[str, _Metric] = {}
        self._collectors: list[Callable[[], Iterable[Family]]] = []
        self._lock = threading.Lock()

    def collect(self, collector: Callable[[], Iterable[Family]]) -> None:
        """Asks `collector` at each look. It bounds its samples itself, and its time."""
        with self._lock:
            self._collectors.append(collector)

    def add(self, metric: _Metric) -> None:
        with self._lock:
            if metric.name in self._metrics:
                raise ValueError(f"metric {metric.name} is declared twice")
            self._metrics[metric.name] = metric

    def render(self) -> str:
        with self._lock:
            metrics = sorted(self._metrics.values(), key=lambda m: m.name)
            collectors = list(self._collectors)
        lines: list[str] = []
        for metric in metrics:
            lines.append(f"# HELP {metric.name} {metric.help}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            lines.extend(metric.samples())
        for collector in collectors:
            for family in collector():
                lines.append(f"# HELP {family.name} {family.help}")
                lines.append(f"# TYPE {family.name} {family.kind}")
                lines.extend(_sample(family.name, family.labels, *sample) for sample in family.samples)
        return "\n".join(lines) + "\n"


REGISTRY = Registry()


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _sample(name: str, names: Labels, values: Labels, value: float) -> str:
    pairs = ",".join(f'{n}="{_escape(v)}"' for n, v in zip(names, values, strict=True))
    number = str(int(value)) if float(value).is_integer() else repr(float(value))
    return f"{name}{{{pairs}}} {number}" if pairs else f"{name} {number}"


class _Metric:
    kind = ""

    def __init__(self, name: str, help: str, labels: Labels = (), registry: Registry = REGISTRY) -> None:
        self.name, self.help, self.labels = name, help, labels
        self._lock = threading.Lock()
        registry.add(self)

    def _key(self, values: Labels) -> Labels:
        if len(values) != len(self.labels):
            raise ValueError(f"metric {self.name} takes the labels {self.labels}, not {values}")
        return values

    def _series_of(self, values: Labels, known: Container[Labels], count: int) -> Labels:
        """The labels under which something is kept: those given, or those of all that came too late."""
        key = tuple(value[:MAX_LABEL] for value in self._key(values))
        return key if key in known or count < MAX_SERIES else (OTHER,) * len(key)

    def samples(self) -> Iterator[str]:
        raise NotImplementedError


class Counter(_Metric):
    kind = "counter"

    def __init__(self, name: str, help: str, labels: Labels = (), registry: Registry = REGISTRY) -> None:
        super().__init__(name, help, labels, registry)
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}

    def inc(self, *values: str, by: float = 1.0) -> None:
        with self._lock:
            key = self._series_of(values, self._values, len(self._values))
            self._values[key] = self._values.get(key, 0.0) + by

    def value(self, *values: str) -> float:
        with self._lock:
            return self._values.get(self._key(values), 0.0)

    def samples(self) -> Iterator[str]:
        with self._lock:
            items = sorted(self._values.items())
        for values, value in items:
            yield _sample(self.name, self.labels, values, value)


class Gauge(Counter):
    kind = "gauge"

    def set(self, value: float, *values: str) -> None:
        with self._lock:
            self._values[self._series_of(values, self._values, len(self._values))] = value

    def track(self, read: Callable[[], float]) -> None:
        """Reads the value when somebody looks, for what is known anyway (a queue's length)."""
        self._read = read

    def samples(self) -> Iterator[str]:
        if read := getattr(self, "_read", None):
            self.set(read())
        return super().samples()


class Histogram(_Metric):
    kind = "histogram"

    def __init__(
        self,
        name: str,
        help: str,
        labels: Labels = (),
        buckets: tuple[float, ...] = DEFAULT_BUCKETS,
        registry: Registry = REGISTRY,
    ) -> None:
        super().__init__(name, help, labels, registry)
        self._bounds = buckets
        self._series: dict[Labels, tuple[list[int], list[float]]] = {}

    def observe(self, value: float, *values: str) -> None:
        with self._lock:
            key = self._series_of(values, self._series, len(self._series))
            counts, total = self._series.setdefault(key, ([0] * (len(self._bounds) + 1), [0.0]))
            counts[bisect_left(self._bounds, value)] += 1
            total[0] += value

    def samples(self) -> Iterator[str]:
        with self._lock:
            series = sorted((key, list(counts), total[0]) for key, (counts, total) in self._series.items())
        for key, counts, total in series:
            running = 0
            for bound, count in zip((*(f"{b:g}" for b in self._bounds), "+Inf"), counts, strict=True):
                running += count
                yield _sample(f"{self.name}_bucket", (*self.labels, "le"), (*key, bound), running)
            yield _sample(f"{self.name}_sum", self.labels, key, total)
            yield _sample(f"{self.name}_count", self.labels, key, running)
