"""How a process gives up what it does not need, for good: all that it can, before it becomes a program that listens to
a guest, and what our own work never needs, before we take requests."""

from __future__ import annotations

import ctypes
import errno
import os
import resource

from virt_netsetup import seccomp
from virt_netsetup.process import CLONE_NEWIPC, CLONE_NEWNET, kernel_call

#: Nobody's: above the users that systemd hands out (to 65519), below "nobody" (65534), in a range that Debian reserves
#: for no use at all. No file is owned by it, and it needs no entry in a list of users, which our image has not.
UID = 65527
CAP_DAC_OVERRIDE, CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETPCAP = 1, 5, 6, 7, 8
CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_PTRACE, CAP_SYS_ADMIN = 10, 12, 13, 19, 21
#: What our own work needs: to enter namespaces, to change a Pod's network, to read and write the cgroups of others'
#: processes, and to put a server there that has a user and capabilities of its own, and to end it.
OURS = (
    CAP_DAC_OVERRIDE, CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETPCAP,
    CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_PTRACE, CAP_SYS_ADMIN,
)  # fmt: skip
#: It needs few descriptors, writes no file and leaves no core.
LIMITS = {resource.RLIMIT_NOFILE: 64, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}

PR_SET_KEEPCAPS, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 8, 22, 24, 38, 47
PR_CAP_AMBIENT_RAISE = 2
SECCOMP_MODE_FILTER = 2
_CAPABILITY_VERSION = 0x20080522
_MOST_CAPABILITIES = 64


class _Program(ctypes.Structure):
    _fields_ = [("size", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def give_up(capabilities: tuple[int, ...], uid: int = UID) -> None:
    """Afterwards the process is `uid`, with these capabilities, which it takes along into the program, and no way to
    get others."""
    for kind, most in LIMITS.items():
        resource.setrlimit(kind, (most, most))
    _drop_bounds(capabilities)
    os.setgroups([])
    _prctl(PR_SET_KEEPCAPS, 1)
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    _set_capabilities(capabilities, inheritable=capabilities)
    for each in capabilities:
        _prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, each)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _filter_calls(seccomp.program(os.uname().machine))


def retire() -> None:
    """For the process that stays: root of the node, but with `OURS` only, without a network of its own, and without the
    calls by which one changes the kernel or looks into other processes. Its children have no more than that."""
    kernel_call("unshare", CLONE_NEWNET | CLONE_NEWIPC)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _drop_bounds(OURS)
    _set_capabilities(OURS)
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    _filter_calls(seccomp.refusing(os.uname().machine))


def _drop_bounds(keep: tuple[int, ...]) -> None:
    for each in range(_MOST_CAPABILITIES):
        try:
            if each not in keep:
                _prctl(PR_CAPBSET_DROP, each)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # The kernel knows no more.
            return


def _set_capabilities(capabilities: tuple[int, ...], inheritable: tuple[int, ...] = ()) -> None:
    """Effective, permitted and inheritable, for the two halves of the numbers; ours are all in the first."""
    mask, passed_on = (sum(1 << each for each in numbers) for numbers in (capabilities, inheritable))
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    kernel_call("capset", header, (ctypes.c_uint32 * 6)(mask, mask, passed_on, 0, 0, 0))


def _filter_calls(program: bytes) -> None:
    if program:
        _prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(_Program(len(program) // 8, program)))


def _prctl(option: int, first: object, second: object = 0) -> None:
    kernel_call("prctl", option, _word(first), _word(second), _word(0), _word(0))


def _word(value: object) -> object:
    """prctl reads whole registers."""
    return ctypes.c_ulong(value) if isinstance(value, int) else value
