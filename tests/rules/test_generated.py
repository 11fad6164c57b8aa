"""Generated code is committed; these tests generate it again and compare."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "hack"))

import generate_chart  # noqa: E402
import generate_protos  # noqa: E402
import generate_supported  # noqa: E402


def test_protobuf_code_is_up_to_date(tmp_path: Path) -> None:
    generate_protos.generate(tmp_path)
    fresh = {path.relative_to(tmp_path): path.read_text() for path in tmp_path.rglob("*_pb2*")}
    assert len(fresh) >= 12
    stale = [str(name) for name, text in fresh.items() if (ROOT / "protos" / name).read_text() != text]
    assert not stale, f"run `make generate`: {stale}"


def test_the_chart_is_up_to_date() -> None:
    """Templates from the manifests, definitions from the structs, the README's table from the values."""
    stale = [name for name, text in generate_chart.render().items() if _text(generate_chart.CHART / name) != text]
    assert not stale, f"run `make generate`: {stale}"
    known = {path.stem for path in (generate_chart.CHART / "templates" / "crds").iterdir()}
    assert known == {Path(name).stem for name in generate_chart.render() if name.startswith("templates/crds/")}


def test_what_follows_from_the_table_of_features_is_up_to_date() -> None:
    """The page for users, and the paths that virt-launcher refuses."""
    stale = [name for name, text in generate_supported.render().items() if _text(ROOT / name) != text]
    assert not stale, f"run `make generate`: {stale}"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
