"""A test that kills a service runs alone: on a cluster, others share that service."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: What ends or stops a service that tests share.
KILLERS = frozenset({"kill_component", "handler_pid"})


def marks(node: ast.AST) -> set[str]:
    """The names of pytest marks in an expression."""
    return {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def module_marks(tree: ast.Module) -> set[str]:
    named = [
        each.value
        for each in tree.body
        if isinstance(each, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in each.targets)
    ]
    return set().union(*(marks(value) for value in named))


def killers(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for each in tree.body:
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test_") and marks(each) & KILLERS:
            yield each


def lonely(text: str) -> list[str]:
    """The tests that kill and do not say that they run alone."""
    tree = ast.parse(text)
    if "alone" in module_marks(tree):
        return []
    return [each.name for each in killers(tree) if "alone" not in set().union(*map(marks, each.decorator_list))]


def test_whoever_kills_a_service_runs_alone() -> None:
    found = {path.name: names for path in (ROOT / "tests/e2e").glob("test_*.py") if (names := lonely(path.read_text()))}
    assert not found, "mark them with pytest.mark.alone"


def test_the_rule_sees_what_it_is_for() -> None:
    body = "def test_x(space):\n    space.engine.kill_component('virt-handler')\n"
    assert lonely(body) == ["test_x"]
    assert lonely(f"@pytest.mark.alone\n{body}") == []
    assert lonely(f"pytestmark = [pytest.mark.e2e, pytest.mark.alone]\n{body}") == []
