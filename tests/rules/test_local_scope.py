"""docs/virt-local.md says for each built-in kind who needs it; a kind that nobody asked for does not slip in."""

from __future__ import annotations

import re
from pathlib import Path

from virt_local.apiserver.builtins.table import BUILTIN_KINDS

PAGE = Path(__file__).parents[2] / "docs" / "virt-local.md"


def rows() -> list[list[str]]:
    """Of the table of kinds: the first one of the page."""
    table = PAGE.read_text().split("## Kinds", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_the_page_and_the_server_have_the_same_kinds() -> None:
    named = [kind for row in rows() for kind in re.findall(r"[A-Z]\w+", row[0])]
    assert sorted(named) == sorted({kind.kind for kind in BUILTIN_KINDS})


def test_every_kind_has_a_client_and_an_effect() -> None:
    assert all(len(row) == 3 and all(row) for row in rows())


def test_the_page_is_found() -> None:
    for name in ("README.md", "ARCHITECTURE.md"):
        assert "docs/virt-local.md" in (PAGE.parents[1] / name).read_text(), name
