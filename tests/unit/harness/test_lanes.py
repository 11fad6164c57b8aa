"""A short run asks every end-to-end test of one engine at least, and none that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import lanes

FOLDER = Path(lanes.__file__).parent
FILES = sorted(FOLDER.glob("test_*.py"))
NAMED = lanes.CLUSTER_ONLY | lanes.BOTH | lanes.NEW_EMULATOR


def test_the_table_names_what_is_there() -> None:
    assert {path.stem for path in FILES} >= NAMED
    assert not lanes.CLUSTER_ONLY & lanes.BOTH
    assert not lanes.NEW_EMULATOR & (lanes.BOTH | lanes.CLUSTER_ONLY)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_runs_somewhere(path: Path) -> None:
    runs = [
        (short, on_cluster)
        for short, on_cluster in (("1", False), ("moves", False), ("1", True))
        if not lanes.is_left_out(path, short=short, on_cluster=on_cluster)
    ]
    assert runs
    assert len(runs) == 1 or path.stem in lanes.BOTH
    assert not lanes.is_left_out(path, short="", on_cluster=True)


def test_other_tests_are_none_of_its_business() -> None:
    assert not lanes.is_left_out(Path("/x/tests/kubernetes/test_node.py"), short="1", on_cluster=True)
