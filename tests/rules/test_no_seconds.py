"""No test measures how long something took: a busy machine would make it fail for nothing. Speed is for tests/bench."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
SUITES = ("unit", "functional", "e2e", "kubernetes", "rules", "framework", "contract", "fuzz")
CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "time"}
#: Prints how long each case took, for people; nothing depends on it.
MAY_MEASURE = {"contract/__main__.py"}


def reads_the_clock(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return isinstance(node.func.value, ast.Name) and node.func.value.id == "time" and node.func.attr in CLOCKS


def measurements(tree: ast.AST) -> Iterator[int]:
    """Lines with `now - then`. `deadline - now`, the time that is left, is a wait; `now - LIMIT` is a moment."""
    differences = (node for node in ast.walk(tree) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub))
    for node in differences:
        moment = isinstance(node.right, ast.Name) and node.right.id.isupper()
        if reads_the_clock(node.left) and not moment:
            yield node.lineno


@pytest.mark.parametrize("suite", SUITES)
def test_nothing_is_timed(suite: str) -> None:
    files = [path for path in (TESTS / suite).rglob("*.py") if str(path.relative_to(TESTS)) not in MAY_MEASURE]
    found = [f"{path}:{line}" for path in files for line in measurements(ast.parse(path.read_text()))]
    assert not found, f"a test waits with a deadline and never measures; a figure belongs in tests/bench: {found}"


@pytest.mark.parametrize(
    ("line", "measures"),
    [
        ("assert time.monotonic() - begun < 8", True),
        ("took = time.perf_counter() - self.started", True),
        ("left = deadline - time.monotonic()", False),
        ("moment = time.monotonic() - LATE_S", False),
    ],
)
def test_the_rule_sees_a_measurement(line: str, measures: bool) -> None:
    assert bool(list(measurements(ast.parse(line)))) == measures
