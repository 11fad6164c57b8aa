"""A failing test gets one more chance, and no more than that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import again


class Runs:
    """In place of pytest: each run has its exit code and the tests that failed in it."""

    def __init__(self, *outcomes: tuple[int, list[str]]) -> None:
        self.outcomes, self.seen = list(outcomes), list[list[str]]()

    def __call__(self, arguments: Sequence[str]) -> int:
        code, failed = self.outcomes.pop(0)
        *asked, option, cache = arguments
        assert option == "-o"
        self.seen.append(asked)
        place = Path(cache.removeprefix("cache_dir=")) / "v/cache/lastfailed"
        if failed:
            place.parent.mkdir(parents=True)
            place.write_text(json.dumps(dict.fromkeys(failed, True)))
        return code


def test_what_fails_twice_has_failed(tmp_path: Path) -> None:
    runs = Runs((1, ["tests/b.py::two", "tests/a.py::one"]), (1, ["tests/a.py::one"]))
    assert again.run(["tests/e2e", "-n", "2"], runs, tmp_path / "record") == 1
    assert runs.seen == [["tests/e2e", "-n", "2"], ["tests/a.py::one", "tests/b.py::two"]]
    assert not (tmp_path / "record").exists()


def test_what_passes_alone_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs((1, ["tests/a.py::one"]), (0, []))
    assert again.run(["tests/e2e"], runs, tmp_path / "build/record") == 0
    assert (tmp_path / "build/record").read_text() == "tests/a.py::one\n"
    assert "look at them:\n   tests/a.py::one\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "failed"),
    [(0, 0), (1, again.MOST + 1), (1, 0), (2, 1), (5, 0)],
    ids=["all passed", "too many failed", "nobody knows which failed", "interrupted", "no tests"],
)
def test_nothing_is_repeated(tmp_path: Path, code: int, failed: int) -> None:
    runs = Runs((code, [f"tests/a.py::{number}" for number in range(failed)]))
    assert again.run(["tests/e2e"], runs, tmp_path / "record") == code
    assert len(runs.seen) == 1


def test_pytest_itself_tells_who_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real one: its cache has the names, and the second run takes them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(
        "import pathlib\n"
        "HERE = pathlib.Path(__file__).parent / 'been'\n"
        "def test_first_time():\n    there = HERE.exists()\n    HERE.touch()\n    assert there\n"
        "def test_fine():\n    pass\n"
    )
    assert again.run([], record=tmp_path / "record") == 0
    assert (tmp_path / "record").read_text() == "test_it.py::test_first_time\n"
