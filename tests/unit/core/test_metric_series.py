"""Labels that a caller chooses do not fill the memory."""

from __future__ import annotations

from virt_core.runtime.metrics import MAX_LABEL, MAX_SERIES, OTHER, Counter, Histogram, Registry


def test_a_metric_tells_only_so_many_labels_apart() -> None:
    registry = Registry()
    calls = Counter("calls_total", "Calls.", ("method",), registry)
    for number in range(MAX_SERIES + 50):
        calls.inc(f"METHOD{number}")
    calls.inc("METHOD0")
    assert calls.value("METHOD0") == 2
    assert calls.value(OTHER) == 50
    assert len(list(calls.samples())) == MAX_SERIES + 1


def test_a_label_has_a_length() -> None:
    seconds = Histogram("seconds", "Seconds.", ("method",), (1.0,), Registry())
    seconds.observe(0.5, "M" * 100_000)
    assert max(map(len, seconds.samples())) < MAX_LABEL + 64
