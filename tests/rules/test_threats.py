"""docs/threat-model.md is true: its tests exist, every finding and every lesson has a row, and no row stays without a
test unnoticed."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from typing import NamedTuple

import pytest
from framework.documents import ROOT

from virt_core.apis.support.table import FEATURES, TODAY

PAGE = ROOT / "docs" / "threat-model.md"
TO_COME = "(to come)"
#: Rows whose test is still to come. Nothing may be added here; who names the test in the page takes its row out.
PENDING: frozenset[str] = frozenset()
#: What the attack on the running system found; the last one is a list of its own.
FINDINGS = [*map(str, range(1, 11)), *(f"11{letter}" for letter in "abcdefgh")]
LESSONS = [
    "CVE-2020-1701",
    "CVE-2020-14316",
    "CVE-2022-1798",
    "CVE-2023-26484",
    "CVE-2024-31419",
    "CVE-2024-31420",
    "CVE-2024-33394",
    "CVE-2025-64324",
    "CVE-2025-64432",
    "CVE-2025-64433",
    "CVE-2025-64434",
    "CVE-2025-64435",
    "CVE-2025-64436",
    "CVE-2025-64437",
    "CVE-2025-14525",
    "CVE-2026-6383",
    "CVE-2026-7374",
    "CVE-2026-9804",
    "CVE-2026-13201",
    "CVE-2026-13208",
    "CVE-2026-13218",
    "CVE-2026-13322",
]
#: Levels at which something runs: a unit test alone proves nothing about the running system.
RUNNING = ("functional/", "e2e/", "kubernetes/")


class Row(NamedTuple):
    id: str
    cases: list[str]
    who: list[str]
    rule: str
    test: str

    @property
    def references(self) -> list[str]:
        return re.findall(r"`([\w/]+\.py::\w+)`", self.test)

    @property
    def feature(self) -> str:
        found = re.fullmatch(r"\(with the feature: (.+)\)", self.test)
        return found[1] if found else ""


def rows() -> list[Row]:
    doors = PAGE.read_text(encoding="utf-8").split("\n## ")[2:]
    lines = [line for door in doors for line in door.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [Row(id.strip("`"), words(case), words(who), rule, test) for id, case, who, rule, test in cells]


def words(cell: str) -> list[str]:
    """Separated by commas; but some actors have one in their name."""
    joined = cell.replace(", taken over", " taken over")
    return [each.strip() for each in joined.split(",") if each.strip() != "-"]


@cache
def functions_of(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def row_of(case: str) -> list[Row]:
    return [row for row in rows() if case in row.cases]


def test_every_named_test_exists() -> None:
    missing = []
    for row in rows():
        for reference in row.references:
            file, name = reference.split("::")
            if not (ROOT / "tests" / file).exists() or name not in functions_of(file):
                missing.append(f"{row.id}: {reference}")
    assert missing == []


def test_every_row_has_its_test_or_is_pending() -> None:
    without = {row.id for row in rows() if not row.references and not row.feature}
    assert without == PENDING, "name the test in the page and take the row out of PENDING"
    assert {row.id for row in rows() if row.test == TO_COME} == PENDING


def test_no_row_is_there_twice() -> None:
    assert [id for id, count in Counter(row.id for row in rows()).items() if count > 1] == []


@pytest.mark.parametrize("case", [*FINDINGS, *LESSONS])
def test_every_finding_and_every_lesson_has_a_row(case: str) -> None:
    assert row_of(case)


def test_there_are_22_lessons() -> None:
    assert len(set(LESSONS)) == 22


@pytest.mark.parametrize("case", LESSONS)
def test_every_lesson_is_tried_where_something_runs(case: str) -> None:
    (row,) = row_of(case)
    assert row.feature or any(reference.startswith(RUNNING) for reference in row.references)


def test_what_waits_for_its_feature_waits_no_longer_than_that() -> None:
    known = {feature.what for feature in FEATURES}
    for row in rows():
        if row.feature:
            assert row.feature in known, row.id
            assert not TODAY.is_built(row.feature), f"{row.id}: the feature is built, its test is owed"


def test_every_actor_of_a_row_is_described() -> None:
    table = PAGE.read_text(encoding="utf-8").split("\n## ")[1]
    actors = {line.strip("|").split("|")[0].strip() for line in table.splitlines() if line.startswith("| ")}
    joined = {each.replace(", taken over", " taken over") for each in actors} | {"any"}
    assert sorted({who for row in rows() for who in row.who} - joined) == []
