"""A door under test: how input for it is made, and what running it must not do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st

#: Takes one input. Raises for what must not happen: AssertionError, or whatever escapes from the code under test.
Run = Callable[[bytes], None]
#: Opens the door in an empty directory of its own.
Open = Callable[[Path], AbstractContextManager[Run]]
#: An input of about this many parts, all of one kind.
Grow = Callable[[int], bytes]


@dataclass(frozen=True)
class Target:
    name: str
    inputs: st.SearchStrategy[bytes]
    open: Open
    #: How many inputs a short pass makes up.
    examples: int = 150
    #: Families of inputs that get longer, by name: the work may grow with the length, not with its square.
    families: Mapping[str, Grow] = field(default_factory=dict)
    #: How many parts the shorter input of a family has.
    parts: int = 200
    #: Bytes that may stay behind after hundreds of inputs: caches that fill up to their limit.
    may_keep: int = 256 << 10
