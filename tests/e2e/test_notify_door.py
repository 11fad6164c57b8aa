"""The socket on which a launcher speaks to virt-handler is the launcher's: nobody else on the node uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from virt_core.apis import names

from .conftest import Space
from .manifests import kernel_boot

pytestmark = pytest.mark.e2e

PROGRAM = Path(__file__).resolve().parents[1] / "functional" / "handler" / "podprocess.py"
NOBODY = 65534


def sockets_of(launcher: int) -> Path:
    """Through the launcher's root, in which a link would lead us out."""
    root = Path(f"/proc/{launcher}/root")
    path = names.PATH_SOCKETS.removeprefix("/var" if (root / "var/run").is_symlink() else "")
    return root / path.lstrip("/")


def test_somebody_on_the_node_cannot_end_a_guest(space: Space) -> None:
    """Neither another user, nor root, nor the user of all launchers, even where they find a way to the file."""
    vmi = space.boot(kernel_boot("told"))
    sockets = sockets_of(space.engine.launcher_pid(vmi["metadata"]["uid"]))
    for uid in (NOBODY, 0, names.LAUNCHER_UID):
        command = [sys.executable, str(PROGRAM), "-", str(sockets), str(uid), "end"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        assert said == "UNAVAILABLE\n", f"as uid {uid}"
    with space.console("told") as console:
        console.prompt()
    assert space.vmi("told")["status"]["phase"] == "Running"
