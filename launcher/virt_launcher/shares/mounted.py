"""Whether a directory of this container is one that somebody mounted there. Pieces of the image are not shared."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_ESCAPED = re.compile(r"\\([0-7]{3})")
#: The kernel's own; a container always has them.
_KERNEL = frozenset({"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "devtmpfs"})
_DEVICES = "/dev"


def objection(directory: str, own: Iterable[str], mountinfo: str) -> str:
    """Why it is not to be shared; empty: it is. `own` are paths that belong to this container itself: what is mounted
    around them is its image, or its socket."""
    place = os.path.realpath(directory)
    point, kind = _mount_of(place, mountinfo)
    ours = any(_is_below(os.path.realpath(path), point) for path in own)
    if point == "/" or ours or kind in _KERNEL or _is_below(place, _DEVICES):
        return f"no volume is mounted at {directory}, and only a path of a volume can be shared"
    return "" if os.path.isdir(place) else f"{directory} is not a directory"


def _mount_of(path: str, mountinfo: str) -> tuple[str, str]:
    """Mount point and kind of the mount on which the path is: the innermost, and of several there the last."""
    found = ("/", "")
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), before.split()[4])
        if _is_below(path, point) and len(point) >= len(found[0]):
            found = (point, after.split()[0])
    return found


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
