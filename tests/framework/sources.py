"""The product's source as syntax trees, for rules about names: who uses what, and which texts stand where."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Source roots with one package each.
ROOTS = ("core", "api", "controller", "handler", "launcher", "netsetup", "virtctl", "local", "client")


@dataclass(frozen=True, slots=True)
class Source:
    #: As Python imports it.
    module: str
    path: Path
    tree: ast.Module

    @property
    def where(self) -> str:
        return str(self.path.relative_to(ROOT))


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def product() -> tuple[Source, ...]:
    """Every module that we ship and wrote ourselves."""
    files = (path for root in ROOTS for path in sorted((ROOT / root).glob("*/**/*.py")))
    return tuple(Source(_module(path), path, ast.parse(path.read_text())) for path in files)


@cache
def tools() -> tuple[Source, ...]:
    """What generates parts of the product."""
    return tuple(Source(path.stem, path, ast.parse(path.read_text())) for path in sorted((ROOT / "hack").glob("*.py")))


def constants(source: Source) -> dict[str, ast.expr]:
    """Public constants of a module: in capitals, at its top level."""
    found: dict[str, ast.expr] = {}
    for node in source.tree.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and target.id.isupper() and target.id[0] != "_":
                found[target.id] = node.value
    return found


def functions(source: Source) -> set[str]:
    return {node.name for node in source.tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}


def taken(source: Source) -> set[tuple[str, str]]:
    """Module and name of what a source takes: imported one by one, as attributes of a module, or from itself."""
    found: set[tuple[str, str]] = set()
    modules: dict[str, str] = {}
    attributes: list[tuple[str, str]] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                found.add((node.module, alias.name))
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.append((node.value.id, node.attr))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add((source.module, node.id))
    return found | {(modules[owner], name) for owner, name in attributes if owner in modules}


def texts(source: Source) -> Iterator[tuple[int, str]]:
    """Every literal string with its line, without docstrings and annotations."""
    passive = {id(child) for node in ast.walk(source.tree) for child in _passive(node)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passive:
            yield node.lineno, node.value


def _passive(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Expr):
        yield node.value
    for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
        if isinstance(annotation, ast.expr):
            yield from ast.walk(annotation)
