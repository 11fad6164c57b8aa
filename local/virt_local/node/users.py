"""Users of a Pod that are nobody on the node: a user namespace for each Pod with `hostUsers: false`.

Each has a range of 65536 numbers of its own, so that what breaks out of one Pod is neither root nor the user of
another. Its network namespace belongs to it. What is mounted into it keeps the owners that it has on the disk: the
mounts translate (idmapped mounts), no file is changed.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from virt_core.runtime import mounts
from virt_core.runtime.files import private_directory
from virt_local.node import kernel

#: The part of the numbers that no distribution and no systemd hands out.
FIRST, SIZE, RANGES = 0x70000000, 65536, 4096
#: Gone after a restart of the machine, as the Pods are. All instances share it.
TAKEN = Path("/run/virtpod-users")
_DEADLINE_S = 20.0

T = TypeVar("T")


@dataclass(frozen=True)
class PodUsers:
    """The namespace, kept by a bind mount at `path`, and the number on the node that its root has."""

    path: Path
    base: int

    @property
    def mappings(self) -> list[dict[str, int]]:
        return [{"containerID": 0, "hostID": self.base, "size": SIZE}]


def take_range(owner: Path, taken: Path = TAKEN) -> int:
    """The first number of a free range. It is `owner`'s, a path that goes when the range is free again."""
    private_directory(str(taken))
    start = secrets.randbelow(RANGES)  # Somewhere, so that a range is not at once another Pod's.
    for step in range(2 * RANGES):
        number = (start + step) % RANGES
        if _claim(taken / str(number), owner):
            return FIRST + number * SIZE
    raise OSError(f"all {RANGES} ranges of users are taken ({taken})")


def _claim(entry: Path, owner: Path) -> bool:
    try:
        os.symlink(owner, entry)
    except FileExistsError:
        if os.path.lexists(os.readlink(entry)):
            return False
        entry.unlink(missing_ok=True)  # Whoever had it was killed before it could say so. The next round may get it.
        return False
    return True


def give_back(base: int, taken: Path = TAKEN) -> None:
    (taken / str((base - FIRST) // SIZE)).unlink(missing_ok=True)


def make(users: PodUsers, netns: Path) -> None:
    """Makes the user namespace and a network namespace that belongs to it, each kept by a bind mount."""
    for path in (users.path, netns):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    with subprocess.Popen(
        ["unshare", "--user", "--net", "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            holder.stdin.write(b"\n")
            holder.stdin.flush()
            if holder.stdout.read(1) != b"\n":
                raise OSError("the kernel gives no user namespace: see user.max_user_namespaces and dmesg")
            for name in ("uid_map", "gid_map"):
                Path(f"/proc/{holder.pid}/{name}").write_text(f"0 {users.base} {SIZE}\n")
            kernel.mount(f"/proc/{holder.pid}/ns/user", str(users.path), flags=kernel.MS_BIND)
            kernel.mount(f"/proc/{holder.pid}/ns/net", str(netns), flags=kernel.MS_BIND)
            holder.stdin.close()
            holder.wait(_DEADLINE_S)
        finally:
            holder.kill()


def forget(path: Path) -> None:
    kernel.unmount(path)
    path.unlink(missing_ok=True)


def show(source: Path, target: Path, users: PodUsers) -> None:
    """Mounts what is at `source` also at `target`, where the owners are those that the Pod has for the numbers."""
    tree = _at(source, mounts.clone)
    try:
        try:
            _at(users.path, lambda userns: mounts.translate(tree, userns), os.O_RDONLY)
        except OSError as error:
            raise OSError(
                error.errno, f"{os.strerror(error.errno or 0)} ({source} cannot be shown to a Pod with own users)"
            ) from error
        _make_point(source, target)
        _at(target, lambda place: mounts.put(tree, place))
    finally:
        os.close(tree)


def _at(path: Path, act: Callable[[int], T], flags: int = os.O_PATH) -> T:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        return act(fd)
    finally:
        os.close(fd)


def _make_point(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()


def work_here(directory: Path) -> bool:
    """Whether this kernel and this file system can do all that is needed. Tried, not guessed from versions."""
    place = directory / f".users-{os.getpid()}"
    users = PodUsers(place / "user", FIRST)
    try:
        place.mkdir()
        make(users, place / "net")
        (place / "source").mkdir()
        show(place / "source", place / "target", users)
        return (place / "target").stat().st_uid == FIRST
    except OSError:
        return False
    finally:
        kernel.unmount_below(place)
        for name in ("target", "source"):
            if (place / name).is_dir():
                (place / name).rmdir()
        for name in ("user", "net"):
            (place / name).unlink(missing_ok=True)
        place.rmdir()
