"""What scripts that run inside the launcher's image share: a libvirt of their own, as the launcher starts it."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import libvirt

from virt_launcher.hypervisor.daemon import Daemon
from virt_launcher.process.children import Children, block_signals
from virt_launcher.settings import Paths

#: The directory that the test shares with the script.
OUT = Path("/out")


@contextmanager
def libvirt_of_the_image() -> Iterator[tuple[libvirt.virConnect, Daemon, Path]]:
    """A connection, the daemon behind it, and a directory to write in."""
    block_signals()
    children, stop = Children(), threading.Event()
    threading.Thread(target=children.run, args=(stop,), daemon=True).start()
    folder = Path(tempfile.mkdtemp())
    # libvirt keeps a TPM's state and its certificates under the user's home.
    os.environ |= {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "config")}
    daemon = Daemon(Paths(private=folder / "private", libvirt=folder / "run"), children)
    daemon.start()
    yield connect(daemon), daemon, folder
    daemon.stop()


def connect(daemon: Daemon) -> libvirt.virConnect:
    for _ in range(100):
        if daemon.socket.exists():
            return libvirt.open(daemon.uri)
        threading.Event().wait(0.1)
    sys.exit(daemon.last_words())
