"""What a run makes carries the number of its process, so that a later one can remove what a killed one has left."""

from __future__ import annotations

import os
import re
from pathlib import Path

_NAME = re.compile(r"virtpod-fresh-(\d+)")


def own_name() -> str:
    return f"virtpod-fresh-{os.getpid()}"


def all_of(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.glob("virtpod-fresh-*")) if _NAME.fullmatch(path.name)]


def dead(folder: Path) -> list[Path]:
    """Of runs whose process is no more."""
    return [path for path in all_of(folder) if not os.path.exists(f"/proc/{path.name.rpartition('-')[2]}")]
