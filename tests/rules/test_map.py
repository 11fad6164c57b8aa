"""ARCHITECTURE.md's map and the tree are the same: a newcomer finds each room, and the file for each handoff."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from framework.documents import ROOT, code_words, prose

from virt_core.apis.handoffs import HANDOFFS, HandoffKind

MAP = ROOT / "ARCHITECTURE.md"
COMPONENTS = ("core", "api", "controller", "handler", "launcher", "netsetup", "virtctl", "local", "client")
_TOP = re.compile(
    rf"^({'|'.join((*COMPONENTS, 'protos', 'tests', 'docs', 'hack', 'charts', 'examples'))})/(?!v\d)[\w./-]+$"
)


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    part = prose(MAP).split(f"# {heading}\n", 1)[1].split("\n#", 1)[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def rooms() -> dict[Path, set[str]]:
    """Each room, with the folders that its line names."""
    found = {}
    for room, text in rows("Rooms"):
        inner = {word.strip("/") for word in code_words(text) if word.endswith("/")}
        found[ROOT / room.strip("`")] = inner
    return found


def folders() -> list[Path]:
    packages = [path for name in COMPONENTS for path in (ROOT / name).glob("*/__init__.py")]
    return [path.parent for package in packages for path in package.parent.rglob("*/__init__.py")]


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_path_that_is_named_exists(page: str) -> None:
    named = [word for word in code_words(prose(ROOT / page)) if _TOP.match(word)]
    assert named
    assert [word for word in named if not (ROOT / word).exists()] == []


def test_every_room_has_its_line() -> None:
    known = rooms()
    assert [str(each.relative_to(ROOT)) for each in known if not each.is_dir()] == []
    outer = [each for each in folders() if each.parent in known or each.parents[2] == ROOT]
    missing = [each for each in outer if each not in known and each.name not in known.get(each.parent, ())]
    assert [str(each.relative_to(ROOT)) for each in missing] == []


def test_folders_that_a_line_names_are_there() -> None:
    gone = [f"{room}/{name}" for room, names in rooms().items() for name in names if not (room / name).is_dir()]
    assert gone == []


@pytest.mark.parametrize("kind", HANDOFFS, ids=lambda kind: kind.name)
def test_every_handoff_has_its_file(kind: HandoffKind) -> None:
    """The file that the table names speaks of the handoff by its constant or its name."""
    (row,) = [row for row in rows("From handoff to file") if row[0] == kind.name]
    (file,) = code_words(row[1])
    text = (ROOT / file).read_text(encoding="utf-8")
    assert kind.name.upper().replace("-", "_") in text or f'"{kind.name}"' in text
