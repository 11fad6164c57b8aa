"""Wiring the network of a Pod by the resident virt-netsetup and, side by side, by a process of its own for each Pod."""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.floor import pss_kib
from tests.bench.rows import Row, times
from tests.functional.netsetup.lab import GUEST_MAC, Lab
from tests.functional.netsetup.resident import Resident

ROUNDS, BURST = 20, 10
#: Of the numbers behind a process's name in its stat: what its children took that it has waited for, in ticks.
_CHILDREN, _TICK_S = slice(13, 15), 0.01
WISH: list[dict[str, Any]] = [{"name": "default", "binding": "masquerade", "mac": GUEST_MAC}]

Act = Callable[[Lab, str, list[dict[str, Any]]], object]


@dataclass
class Way:
    """One way to ask, and how to read the processor time that it has taken so far."""

    ask: Act
    spent_s: Callable[[], float]


def by_hand() -> Way:
    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    return Way(lambda lab, action, wish: lab.netsetup(action, wish), spent)


def by(resident: Resident) -> Way:
    def spent() -> float:
        while resident.children():
            time.sleep(0.001)
        fields = Path(f"/proc/{resident.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[_CHILDREN])) * _TICK_S

    return Way(resident.ask, spent)


def one(way: Way, lab: Lab) -> tuple[float, float]:
    """Median time and mean processor time of a setup, in ms."""
    way.ask(lab, "setup", WISH)
    way.ask(lab, "teardown", [])
    took, spent = [], 0.0
    for _ in range(ROUNDS):
        before, start = way.spent_s(), time.monotonic()
        way.ask(lab, "setup", WISH)
        took.append(time.monotonic() - start)
        spent += way.spent_s() - before
        way.ask(lab, "teardown", [])
    return statistics.median(took) * 1000, spent / ROUNDS * 1000


def burst(way: Way, labs: list[Lab]) -> float:
    """From the first request to the last answer, in ms."""
    with ThreadPoolExecutor(len(labs)) as pool:
        start = time.monotonic()
        list(pool.map(lambda lab: way.ask(lab, "setup", WISH), labs))
        took = time.monotonic() - start
        list(pool.map(lambda lab: way.ask(lab, "teardown", []), labs))
    return took * 1000


def rows() -> list[Row]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "state"
        labs = [stack.enter_context(Lab(folder)) for _ in range(BURST)]
        resident = stack.enter_context(Resident())
        ways = by(resident), by_hand()
        (time_ms, spent_ms), (hand_ms, hand_spent_ms) = (one(way, labs[0]) for way in ways)
        burst_ms, hand_burst_ms = (burst(way, labs) for way in ways)
        memory = pss_kib(resident.pid) / 1024
    return [
        _row("wire one NIC, processor time / by hand", spent_ms, hand_spent_ms, "<= 30 ms"),
        _row("wire one NIC, time / by hand", time_ms, hand_ms),
        _row("wire ten Pods at once, time / by hand", burst_ms, hand_burst_ms),
        Row("PSS of the resident virt-netsetup", f"{memory:.0f} MiB"),
    ]


def _row(what: str, ours: float, floor: float, aim: str = "") -> Row:
    return Row(what, f"{ours:.0f} ms", aim, f"{floor:.0f} ms", times(ours, floor))


if __name__ == "__main__":
    from tests.bench.rows import show

    show(rows())
