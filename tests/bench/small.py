"""Small programs that are started often, each beside the least that the same start costs: an empty Python."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.rows import Row, times
from tests.functional.netsetup.lab import GUEST_MAC, Lab

ROUNDS = 10


def median_ms(act: Callable[[], object], after: Callable[[], object] = lambda: None) -> float:
    took = []
    for _ in range(ROUNDS):
        start = time.monotonic()
        act()
        took.append((time.monotonic() - start) * 1000)
        after()
    return statistics.median(took)


def empty_python_ms() -> float:
    return median_ms(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True, timeout=30))


def netsetup_ms() -> float:
    """A whole run of the program: TAP, bridge, NAT and DHCP of a masqueraded Pod."""
    wanted = [{"name": "default", "binding": "masquerade", "mac": GUEST_MAC}]
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder) / "state") as lab:
        return median_ms(lambda: lab.netsetup("setup", wanted), lambda: lab.netsetup("teardown", []))


def rows() -> list[Row]:
    floor, netsetup = empty_python_ms(), netsetup_ms()
    name = "virt-netsetup by itself, a masqueraded Pod / an empty Python"
    return [Row(name, f"{netsetup:.0f} ms", "<= 10x", f"{floor:.0f} ms", times(netsetup, floor))]
