"""Several files that belong together, swapped all at once as kubelet does it: a new directory for each version, and one
renamed link. A reader sees all of the old ones or all of the new ones."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

CURRENT = "..data"
_GENERATION = "..version-"


def write_files(directory: Path, contents: dict[str, bytes]) -> bool:
    """Swaps all files at once; False when they are there already. Only their owner can read them."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    old = _generation(directory)
    if old is not None and _read(old, contents) == contents:
        return False
    number = int(old.name.removeprefix(_GENERATION)) + 1 if old is not None else 1
    new = directory / f"{_GENERATION}{number}"
    # From a writer that was killed before it had swapped.
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    for name, data in contents.items():
        _write(new / name, data)
    _link(directory / CURRENT, new.name)
    for name in contents:
        _link(directory / name, f"{CURRENT}/{name}")
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
    return True


def _generation(directory: Path) -> Path | None:
    try:
        name = os.readlink(directory / CURRENT)
    except OSError:
        return None
    number = name.removeprefix(_GENERATION)
    return directory / name if name.startswith(_GENERATION) and number.isdigit() else None


def _read(directory: Path, contents: dict[str, bytes]) -> dict[str, bytes]:
    try:
        return {name: (directory / name).read_bytes() for name in contents}
    except OSError:
        return {}


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _link(path: Path, target: str) -> None:
    """Makes or replaces a symbolic link in one step."""
    if path.is_symlink() and os.readlink(path) == target:
        return
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, path)
