"""Which labels and annotations a clone takes over.

KubeVirt reads a filter as a regular expression that may match anywhere in a key. A pattern that somebody else writes is
run here by the controller that all share, so only the part of that language is taken that cannot run away: the
characters of keys, a dot for any of them, ^ before and * or $ behind. What it takes means the same as there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

ALL, NOT = "*", "!"
#: As many as anybody could want; each is tried on each key.
MOST = 64
LONGEST = 512

_FORM = re.compile(r"(?:[A-Za-z0-9._/-]|\\[._/-])+")


def fault_of(text: str) -> str:
    """Why it is no filter; empty when it is one."""
    if not text or text == NOT:
        return "must name a key"
    if len(text) > LONGEST:
        return f"must have at most {LONGEST} characters"
    body = text.removeprefix(NOT)
    if NOT in body:
        return "'!' can only be at the start"
    if ALL in body[:-1]:
        return "'*' can only be at the end"
    if body != ALL and not _FORM.fullmatch(_bare(body)):
        return "may have letters, digits, '.', '_', '-' and '/', with '^' before and '*' or '$' behind them"
    return ""


def _bare(body: str) -> str:
    return body.removeprefix("^").removesuffix(body[-1] if body[-1] in "*$" else "")


def dropped(keys: Iterable[str], filters: Iterable[str] | None) -> list[str]:
    """The keys that stay behind, in order. None: none do. One that is no filter drops nothing and keeps nothing."""
    if filters is None:
        return []
    good = [text for text in filters if not fault_of(text)]
    wanted = [_matcher(text) for text in good if not text.startswith(NOT)]
    unwanted = [_matcher(text.removeprefix(NOT)) for text in good if text.startswith(NOT)]
    kept = {key for key in keys if any(map(_on(key), wanted)) and not any(map(_on(key), unwanted))}
    return sorted(set(keys) - kept)


def _matcher(body: str) -> re.Pattern[str]:
    return re.compile(".*" if body == ALL else body)


def _on(key: str) -> Callable[[re.Pattern[str]], object]:
    return lambda pattern: pattern.search(key)
