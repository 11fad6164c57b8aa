"""msgspec's first look at a struct is not safe in threads: structs are read through virt_core.apis.base only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("core", "api", "controller", "handler", "launcher", "netsetup", "virtctl", "local")
DOOR = ROOT / "core" / "virt_core" / "apis" / "base.py"


def lazy_looks(tree: ast.AST) -> Iterator[int]:
    """Lines that have msgspec read into a type the first time they run. Plain JSON (`dict[…]`) needs no look."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            wanted = [ast.unparse(word.value) for word in call.keywords if word.arg == "type"]
            into_struct = any(not each.startswith("dict") for each in wanted)
            if name in ("msgspec.convert", "msgspec.json.Decoder") or (name == "msgspec.json.decode" and into_struct):
                yield call.lineno


def test_structs_are_read_through_one_door() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for source in SOURCES
        for path in sorted((ROOT / source).rglob("*.py"))
        if path != DOOR
        for line in lazy_looks(ast.parse(path.read_text()))
    ]
    assert found == []


def test_the_rule_sees_what_it_forbids() -> None:
    bad = "def f(x):\n  msgspec.json.decode(x, type=Size)\n  msgspec.convert(x, Size)\n  msgspec.json.decode(x)\n"
    assert list(lazy_looks(ast.parse(bad))) == [2, 3]
