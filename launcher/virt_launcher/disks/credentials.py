"""What the Secrets of access credentials hold: public keys, and passwords by user. Bounded, since people fill them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_MAX_FILE = 1 << 20
_MAX_FILES = 256
_MAX_KEYS = 1024


def keys_in(directories: Iterable[Path]) -> tuple[str, ...]:
    """Every line of every value is a key; empty lines and remarks are none. Each once, in order."""
    lines = (line.strip() for directory in directories for _, text in _values(directory) for line in text.splitlines())
    found = dict.fromkeys(line for line in lines if line and not line.startswith("#"))
    return tuple(found)[:_MAX_KEYS]


def passwords_in(directory: Path) -> dict[str, str]:
    """By user. A value that was written with a line's end by mistake means what stands before it."""
    return {name: text.removesuffix("\n") for name, text in _values(directory)}


def _values(directory: Path) -> Iterator[tuple[str, str]]:
    """A mounted Secret shows its values as links into a hidden directory, which changes as a whole."""
    try:
        names = sorted(entry for entry in os.listdir(directory) if not entry.startswith("."))
    except FileNotFoundError:
        return
    for name in names[:_MAX_FILES]:
        with open(directory / name, "rb") as file:
            yield name, file.read(_MAX_FILE).decode(errors="replace")
