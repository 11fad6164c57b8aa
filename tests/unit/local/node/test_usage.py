"""What a Pod takes of the disk: blocks and not sizes, each file once, nothing behind a link."""

from __future__ import annotations

import os
from pathlib import Path

from virt_local.node.volumes.usage import taken

MIB = 1 << 20


def test_holes_cost_nothing_and_links_count_once(tmp_path: Path) -> None:
    root = tmp_path / "volume"
    (root / "deep").mkdir(parents=True)
    empty = taken(root)
    (root / "deep" / "file").write_bytes(os.urandom(MIB))
    os.link(root / "deep" / "file", root / "again")
    (tmp_path / "outside").write_bytes(os.urandom(MIB))
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "way-out").symlink_to(tmp_path)
    with (root / "sparse").open("wb") as sparse:
        sparse.truncate(64 * MIB)
    assert MIB <= taken(root) - empty < 2 * MIB


def test_what_is_not_there_takes_nothing(tmp_path: Path) -> None:
    assert taken(tmp_path / "none") == 0
