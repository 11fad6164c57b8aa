"""`virt-reserve`: becomes the qemu-pr-helper of a node. Process 1 of a Pod of its own (decisions/0038).

    virt-reserve --directory=/run/virtpod/reservations

What a guest asks about reservations needs a right that no launcher has. Its QEMU passes the disk, which it has open
anyway, and the command to the helper, and gets the answer back: nobody reaches a disk by it that is not theirs.

The socket is open to everybody who comes to it, and nobody comes to it but by a mount of its directory: the one above
belongs to root alone. So it works for launchers whose users are nobody on the node, too. It is made here and handed
over, for the helper itself would make it for root only.
"""

from __future__ import annotations

import os
import socket
import stat
import sys

from virt_core.apis import names

PROGRAM = "qemu-pr-helper"
#: Nobody's, as that of the DHCP server: between the users that systemd hands out and `nobody`.
USER = 65526
#: As many guests may ask at the same moment before one is turned away.
_BACKLOG = 64
_USAGE = "usage: virt-reserve --directory=PATH"
#: By which a program learns of sockets that it is handed (systemd's convention); they begin after the standard ones.
_FIRST_FD = 3


class ReserveError(Exception):
    """Why nobody can ask: the last words of the container."""


def main() -> int:
    try:
        directory = directory_of(sys.argv[1:])
        program = find(os.environ.get("PATH", os.defpath))
        hand_over(listen(directory))
        argv, environment = command(program, os.getpid())
        os.execve(program, argv, environment)  # noqa: S606 - no shell is the point
    except (ReserveError, OSError) as error:
        sys.stderr.write(f"virt-reserve: {error}\n")
    return 1


def directory_of(argv: list[str]) -> str:
    flag, _, path = argv[0].partition("=") if len(argv) == 1 else ("", "", "")
    if flag != "--directory" or not path.startswith("/"):
        raise ReserveError(_USAGE)
    return path


def find(path: str) -> str:
    for directory in path.split(":"):
        candidate = os.path.join(directory, PROGRAM)
        if directory and os.access(candidate, os.X_OK):
            return candidate
    raise ReserveError(f"there is no {PROGRAM} here; Debian has it in the package qemu-system-common")


def listen(directory: str) -> socket.socket:
    """In a directory that only mounts lead to. Whoever may write there is root already, but a link is nobody's wish."""
    os.chmod(directory, 0o700)
    inner = os.path.join(directory, os.path.basename(os.path.dirname(names.NODE_SOCKET_RESERVATIONS)))
    os.makedirs(inner, exist_ok=True)
    if not stat.S_ISDIR(os.lstat(inner).st_mode):
        raise ReserveError(f"{inner} is not a directory")
    os.chmod(inner, 0o755)  # noqa: S103 - the directory above is closed
    path = os.path.join(inner, os.path.basename(names.NODE_SOCKET_RESERVATIONS))
    if os.path.lexists(path):
        os.unlink(path)  # Of the one before us, who listens no more.
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    os.chmod(path, 0o666)  # noqa: S103
    server.listen(_BACKLOG)
    return server


def hand_over(server: socket.socket) -> None:
    """From here on it is the helper's, and not closed with our object."""
    fd = server.detach()
    if fd == _FIRST_FD:
        os.set_inheritable(fd, True)
    else:
        os.dup2(fd, _FIRST_FD)


def command(program: str, pid: int) -> tuple[list[str], dict[str, str]]:
    """It gives up all rights but that to speak SCSI, and root with them. What is ours in the environment is not its."""
    return [program, "--user", str(USER), "--group", str(USER)], {"LISTEN_FDS": "1", "LISTEN_PID": str(pid)}


if __name__ == "__main__":
    sys.exit(main())
