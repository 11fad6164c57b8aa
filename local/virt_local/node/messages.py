"""What the programs that we run say when they fail, as one line for a status or an event.

The same failure must give the same text, or the API would collect a new event for each try: no times, no source ports.
"""

from __future__ import annotations

import re

_MAX = 500
_LOGGED = re.compile(r'\bmsg="((?:[^"\\]|\\.)*)"|\bmsg=(\S+)')
#: `read udp 10.0.0.5:41873->10.0.0.1:53`: the first port is another one each time.
_SOURCE_PORT = re.compile(r"(?<=[\d\]]):\d+->")


def plain_message(text: str) -> str:
    """The last line, without the time and level that logrus (runc, skopeo) puts around it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    match = _LOGGED.search(lines[-1])
    if match is None:
        return _stable(lines[-1])
    quoted, bare = match.groups()
    return _stable(bare if quoted is None else _unquote(quoted))


def _unquote(text: str) -> str:
    return re.sub(r"\\([\"\\])", r"\1", text.replace("\\n", " ").replace("\\t", " "))


def _stable(text: str) -> str:
    return _SOURCE_PORT.sub("->", text)[:_MAX].strip()
