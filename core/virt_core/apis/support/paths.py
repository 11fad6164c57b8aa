"""Finds which of many paths a document has. All paths are one tree, so that a spec is walked once, and only as deep as
some path goes. virt-launcher imports this, so it stays small."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class _Node:
    """What can follow here by name, or in every entry of a list; and what is meant when a path ends here."""

    __slots__ = ("children", "ends", "entries", "meant", "values")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.entries: _Node | None = None
        self.ends = False
        self.meant: Any = None
        self.values: tuple[str, ...] = ()


class Paths:
    """`domain.devices.disks[].tag`: in every entry of a list. `architecture=arm64|s390x`: these values only."""

    def __init__(self, paths: Iterable[tuple[str, Any]]) -> None:
        self._root: _Node = _Node()
        for path, meant in paths:
            self._add(path, meant)

    def _add(self, path: str, meant: Any) -> None:
        names, _, values = path.partition("=")
        node = self._root
        for name in names.split("."):
            node = node.children.setdefault(name.removesuffix("[]"), _Node())
            if name.endswith("[]"):
                node.entries = node.entries or _Node()
                node = node.entries
        node.ends, node.meant, node.values = True, meant, tuple(values.split("|")) if values else ()

    def asked(self, document: object, path: str) -> list[tuple[str, Any]]:
        """Every path at which the plain document asks for something, with what is meant by it."""
        found: list[tuple[str, Any]] = []
        _walk(self._root, document, path, found)
        return found


def _walk(node: _Node, value: Any, path: str, found: list[tuple[str, Any]]) -> None:
    if node.ends and _asks(value, node.values):
        found.append((path, node.meant))
    if node.entries is not None and isinstance(value, list):
        for index, entry in enumerate(value):
            _walk(node.entries, entry, f"{path}[{index}]", found)
    if node.children and isinstance(value, dict):
        for name, child in node.children.items():
            if name in value:
                _walk(child, value[name], f"{path}.{name}", found)


def _asks(value: Any, values: tuple[str, ...]) -> bool:
    """An empty object asks (`sriov: {}`); what is absent, false, empty or switched off does not."""
    if values:
        return isinstance(value, str) and value in values
    if isinstance(value, dict):
        return value.get("enabled") is not False
    return bool(value)


def is_under(path: str, parents: Iterable[str]) -> bool:
    """Whether a path is one of these or lies below it."""
    return any(path == parent or path.startswith((f"{parent}.", f"{parent}[")) for parent in parents)
