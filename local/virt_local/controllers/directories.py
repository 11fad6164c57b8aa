"""Removes a directory that Pods have written to, without following what they may have left in it."""

from __future__ import annotations

import shutil
from pathlib import Path

from virt_core.runtime.logs import get_logger

log = get_logger("virt-local.directories")


def remove_tree(parent: Path, name: str) -> None:
    """`name` is one path segment of ours. rmtree works on descriptors here and never follows a link."""
    if not name or "/" in name or name in (".", ".."):
        raise ValueError(f"{name!r} is not a directory's name")
    path = parent / name
    if path.is_symlink() or not path.exists():
        return
    if not shutil.rmtree.avoids_symlink_attacks:
        raise RuntimeError("this platform cannot remove directories safely")
    try:
        shutil.rmtree(path)
    except OSError as err:
        log.warning("a volume's directory could not be removed", path=str(path), error=str(err))
