"""The chart as `helm template` renders it, compared with files that people have read.

`UPDATE_GOLDEN=1 pytest tests/unit/chart/test_golden.py` writes them anew; read the difference before you keep it. What
is generated stands in the default's file once; the definitions of our kinds are left out of all, for test_rendered.py
compares them with the structs.
"""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

import pytest
from framework.helm import CHART, ROOT, helm, template

from virt_core import __version__

GOLDEN = ROOT / "tests" / "golden" / "chart"
CASES = sorted(path.stem.removesuffix(".values") for path in GOLDEN.glob("*.values.yaml"))


def kept(text: str, case: str) -> str:
    leave_out = (
        ("crds/",) if case == "default" else ("crds/", "rbac.yaml", "roles.yaml", "webhooks.yaml", "apiservice.yaml")
    )
    prefixes = tuple(f"# Source: virtpod/templates/{name}" for name in leave_out)
    parts = [part for part in re.split(r"(?m)^---\n", text) if part.strip() and not part.startswith(prefixes)]
    return "---\n".join(sorted(parts, key=_order)).replace(__version__, "VERSION")


def _order(part: str) -> tuple[str, str]:
    """By template: Helm's own order is by kind, which tears apart what belongs together."""
    name = re.search(r"(?m)^  name: (.*)$", part)
    return part.partition("\n")[0], name[1] if name else ""


@pytest.mark.parametrize("case", CASES)
def test_the_chart_renders_as_it_was_read(case: str) -> None:
    path = GOLDEN / f"{case}.yaml"
    fresh = kept(template((GOLDEN / f"{case}.values.yaml").read_text()), case)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(fresh)
    known = path.read_text() if path.exists() else ""
    changes = "".join(difflib.unified_diff(known.splitlines(True), fresh.splitlines(True), "golden", "now", n=2))
    assert not changes, changes


def test_there_are_cases() -> None:
    assert {"default", "everything", "small"} <= set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_lint_finds_nothing(case: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text((GOLDEN / f"{case}.values.yaml").read_text())
    said = helm("lint", "--strict", "--values", str(values), str(CHART))
    assert "[WARNING]" not in said
    assert "[ERROR]" not in said
