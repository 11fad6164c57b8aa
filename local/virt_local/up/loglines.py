"""`virt-local logs`: finds a component's log, prints its end, follows it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from virt_local.up.errors import UpError
from virt_local.up.instance import Instance

_POLL_S = 0.2
_BLOCK = 64 * 1024


def find_log(instance: Instance, component: str) -> Path:
    """By its exact name, or by the part before the node (`virt-handler` for `virt-handler@node1`) when there is one."""
    known = sorted(path.stem for path in instance.log_dir.glob("*.log"))
    matching = [name for name in known if name == component] or [
        name for name in known if name.split("@")[0] == component
    ]
    if len(matching) == 1:
        return instance.log_file(matching[0])
    if matching:
        raise UpError(f"Several components are called {component}: name one of {', '.join(matching)}.", exit_code=2)
    raise UpError(
        f"There is no log of {component!r}; there are logs of {', '.join(known) or 'nothing yet'}.", exit_code=2
    )


def tail(path: Path, lines: int) -> str:
    """The last lines, read from the end."""
    with path.open("rb") as stream:
        position = stream.seek(0, os.SEEK_END)
        data = b""
        while position > 0 and data.count(b"\n") <= lines:
            step = min(_BLOCK, position)
            position = stream.seek(position - step)
            data = stream.read(step) + data
    wanted = data.splitlines(keepends=True)[-lines:] if lines else []
    return b"".join(wanted).decode(errors="replace")


def follow(path: Path) -> None:
    """Prints what is added until interrupted; a log that starts anew is read from its start."""
    stream = path.open("rb")
    stream.seek(0, os.SEEK_END)
    try:
        while True:
            data = stream.read(_BLOCK)
            if data:
                sys.stdout.buffer.write(data)
                sys.stdout.flush()
                continue
            if _replaced(path, stream.fileno()):
                stream.close()
                stream = path.open("rb")
            time.sleep(_POLL_S)
    finally:
        stream.close()


def _replaced(path: Path, descriptor: int) -> bool:
    try:
        return path.stat().st_ino != os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False
