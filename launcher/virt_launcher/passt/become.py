"""A child of the launcher that becomes the passt which carries one guest's traffic.

passt walls itself in with namespaces and mounts of its own, and ends if it cannot. A Pod's seccomp profile forbids that
to everybody, and rightly so. Here the container is the wall (decisions/0040), and passt is told that its own was built:
a filter on top of the Pod's answers those four calls with success, and nothing happens. passt's list of the system
calls that it will ever make, which is its second wall, is left as it is. It imports next to nothing.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Sequence

PROGRAM = "passt"
#: Comes with every passt since 2025. That of Debian 12 is older, and leaves guests waiting for the end of a handshake.
_SIGN = "passt-repair"
_MISSING = (
    "this image has no passt, or one from before 2025; Debian has it since 13, in the package passt, and on a Debian 12"
    " machine hack/passt brings it to virt-local"
)
#: By machine: its number in the audit interface, and unshare, mount, pivot_root and umount2 on it.
CALLS = {"x86_64": (0xC000003E, (272, 165, 155, 166)), "aarch64": (0xC00000B7, (97, 40, 41, 39))}
#: Without it the guest would reach what listens on the Pod's loopback by the address of its gateway.
_ALWAYS = ("--no-map-gw",)

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _MACHINE = 0, 4
_ALLOW, _ANSWER = 0x7FFF0000, 0x00050000
_SET_SECCOMP, _FILTER, _SET_NO_NEW_PRIVILEGES = 22, 2, 38


class PasstError(Exception):
    """Why there is no passt."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def main() -> int:
    try:
        argv = command(sys.argv[1:], find(os.environ.get("PATH", os.defpath)))
        answer_with_success(program(os.uname().machine))
        os.execv(argv[0], argv)  # noqa: S606 - no shell is the point
    except (PasstError, OSError) as error:
        sys.stderr.write(f"{error}\n")
    return 1


def find(path: str, own: str = os.path.dirname(sys.executable)) -> str:
    """Beside the Python that runs us first, where virt-local has it."""
    for directory in (own, *path.split(":")):
        both = [os.path.join(directory, name) for name in (PROGRAM, _SIGN)]
        if directory and all(os.access(each, os.X_OK) for each in both):
            return both[0]
    raise PasstError(_MISSING)


def command(argv: Sequence[str], passt: str) -> list[str]:
    return [passt, *argv, *_ALWAYS]


def program(machine: str) -> bytes:
    """In the kernel's form. What another filter allows or forbids beside these calls stays as it is."""
    if machine not in CALLS:
        raise PasstError(f"it is not known how {machine} numbers its system calls")
    architecture, numbers = CALLS[machine]
    allow = (_RETURN, 0, 0, _ALLOW)
    instructions = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, architecture), allow, (_LOAD, 0, 0, _NUMBER)]
    for number in numbers:
        instructions += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ANSWER)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in [*instructions, allow])


def answer_with_success(instructions: bytes) -> None:
    """Of filters that answer a call, the one that came last is heard. Raises PasstError."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(instructions, len(instructions))
    loaded = _Program(len(instructions) // 8, ctypes.cast(code, ctypes.c_void_p))
    for arguments in ((_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, ctypes.byref(loaded), 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise PasstError(f"the kernel takes no filter of system calls: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    sys.exit(main())
