"""Writes a set of files so that a reader sees all of the old ones or all of the new ones.

The files live in a directory of their own; `..data` is a link to the current one, and what the user sees are links
through `..data`. Swapping that one link is the update. The same layout as the kubelet's, since programs watch for it.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

from virt_local.node.volumes.payload import File

_DATA = "..data"


def write_files(directory: Path, files: dict[str, File], group: int | None) -> bool:
    """Says whether anything changed. With a group, the files are its to read."""
    current = directory / _DATA
    if current.exists() and _read(current.resolve()) == {path: file.data for path, file in files.items()}:
        return False
    fresh = directory / f"..{uuid.uuid4().hex}"
    fresh.mkdir(mode=0o700)
    for path, file in files.items():
        _write_file(fresh / path, file, group)
    for made in (fresh, *(path for path in fresh.rglob("*") if path.is_dir())):
        made.chmod(0o755)
    old = current.resolve() if current.is_symlink() else None
    _swap(directory / _DATA, fresh.name)
    _link(directory, files)
    if old is not None and old.parent == directory:
        shutil.rmtree(old)
    return True


def _read(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def _write_file(path: Path, file: File, group: int | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as stream:
        stream.write(file.data)
        mode = file.mode & 0o777
        if group is not None:
            os.fchown(fd, -1, group)
            mode |= 0o440
        os.fchmod(fd, mode)


def _swap(link: Path, target: str) -> None:
    temporary = link.with_name(f"{link.name}_tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, link)


def _link(directory: Path, files: dict[str, File]) -> None:
    """The names that users see, one for each top-level entry; those of vanished files go."""
    wanted = {path.split("/", 1)[0] for path in files}
    for name in wanted:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"{_DATA}/{name}")
    for entry in directory.iterdir():
        if not entry.name.startswith("..") and entry.name not in wanted:
            entry.unlink()
