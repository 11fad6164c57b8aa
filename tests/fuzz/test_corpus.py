"""Every stored input, each time: what once broke something does not break it again."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz import corpus
from fuzz.catalog import TARGETS


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_stored_inputs_are_taken(name: str, tmp_path: Path) -> None:
    stored = [path for path in corpus.files(name) if not path.name.startswith(corpus.EXPECTED_TO_FAIL)]
    assert stored, f"tests/fuzz/corpus/{name} is empty"
    with TARGETS[name].open(tmp_path) as run:
        for path in stored:
            try:
                run(path.read_bytes())
            except BaseException as error:
                error.add_note(
                    f"the input is {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}"
                )
                raise


def known_failures() -> list[object]:
    found = [(name, path) for name in sorted(TARGETS) for path in corpus.files(name)]
    return [
        pytest.param(
            name, path, id=f"{name}/{path.name}", marks=pytest.mark.xfail(strict=True, reason=corpus.reason(path))
        )
        for name, path in found
        if path.name.startswith(corpus.EXPECTED_TO_FAIL)
    ]


@pytest.mark.parametrize(("name", "path"), known_failures())
def test_known_failures_still_fail(name: str, path: Path, tmp_path: Path) -> None:
    """Strict: whoever mends it renames the file, and from then on it must stay mended."""
    with TARGETS[name].open(tmp_path) as run:
        run(path.read_bytes())


def test_the_corpus_is_small_and_known() -> None:
    folders = {path.name for path in corpus.HERE.iterdir() if path.is_dir()}
    assert folders <= TARGETS.keys()
    assert sum(path.stat().st_size for path in corpus.HERE.rglob("*") if path.is_file()) < 1 << 20
