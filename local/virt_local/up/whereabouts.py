"""Where an instance keeps its data, found by its name alone.

Most live in the place that follows from their name. Of those that do not, a link is kept: from the first `up` with
another --data-dir until `down --purge`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from virt_local.up.instance import Instance, check_name, default_data_dir
from virt_local.up.state import load_settings

LINKS = Path("/var/lib/virtpod-instances")
#: Another instance that goes takes the empty directory away, perhaps just before we use it.
_TRIES = 10


def find(name: str, links: Path | None = None) -> Path:
    """The instance's data directory: where its link leads, if it lives there, else the usual place."""
    check_name(name)
    usual = Path(default_data_dir(name))
    try:
        target = Path(os.readlink((links or LINKS) / name))
        settings = load_settings(target)
    except (FileNotFoundError, NotADirectoryError):
        return usual
    return target if settings is not None and settings.name == name else usual


def remember(instance: Instance, links: Path = LINKS) -> None:
    """A reader sees the old link or the new one."""
    if instance.data_dir == Path(default_data_dir(instance.name)):
        (links / instance.name).unlink(missing_ok=True)
        return
    temporary = links / f".{instance.name}.{os.getpid()}"
    for _ in range(_TRIES):
        with suppress(FileNotFoundError, FileExistsError):
            links.mkdir(parents=True, exist_ok=True, mode=0o755)
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(instance.data_dir)
            break
    temporary.replace(links / instance.name)


def forget(instance: Instance, links: Path = LINKS) -> None:
    """When the data are gone. A link that leads elsewhere is another's."""
    link = links / instance.name
    if link.is_symlink() and Path(os.readlink(link)) == instance.data_dir:
        link.unlink()
    with suppress(OSError):
        links.rmdir()  # Only when it is empty.
