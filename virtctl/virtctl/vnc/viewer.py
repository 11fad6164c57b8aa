"""Which VNC viewer there is, and how it is called."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

import click

#: How to show what is at a local port: the command line.
Viewer = Callable[[int], list[str]]

_APPS = "/Applications"
#: Programs to look for, by type, best first.
_PROGRAMS = {
    "remote-viewer": ("remote-viewer",),
    "tiger": ("vncviewer", f"{_APPS}/TigerVNC.app/Contents/MacOS/TigerVNC"),
    "chicken": (f"{_APPS}/Chicken.app/Contents/MacOS/Chicken",),
    "real": (f"{_APPS}/VNC Viewer.app/Contents/MacOS/vncviewer",),
}


def find_viewer(kind: str | None, path: str | None) -> Viewer:
    """Raises ClickException when there is none."""
    if path:
        if not os.path.exists(path):
            raise click.ClickException(f"there is no program at {path}")
        return _command_line(kind or "tiger", path)
    for candidate in [kind] if kind else _PROGRAMS:
        for program in _PROGRAMS[candidate]:
            if found := shutil.which(program):
                return _command_line(candidate, found)
    looked_for = _PROGRAMS[kind][0] if kind else "remote-viewer or vncviewer"
    raise click.ClickException(f"{looked_for} is not in $PATH: install it, or use --proxy-only")


def _command_line(kind: str, program: str) -> Viewer:
    def call(port: int) -> list[str]:
        if kind == "remote-viewer":
            return [program, f"vnc://127.0.0.1:{port}"]
        extra = ["-WarnUnencrypted=0", "-Shared=0", "-ShareFiles=0"] if kind == "real" else []
        return [program, f"127.0.0.1:{port}" if kind != "tiger" else f"127.0.0.1::{port}", *extra]

    return call
