"""Which system calls a server that we leave in a Pod may make, and which we ourselves may not, as programs for the
kernel's filter. Pure.

It names what dnsmasq and the C library need to serve DHCP and advertise a router, and no more: no new processes, no
change of identity or namespaces, no mounts, and sockets for UDP, ICMPv6 and the list of links only. In particular none
for nftables, whose rules stand between the guest and its Pod.
"""

from __future__ import annotations

import errno
import struct

#: By machine: its number in the audit interface, and its column below.
MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_NONE = -1
#: Numbers of system calls on x86_64 and aarch64.
CALLS = {
    # To become the program.
    "execve": (59, 221), "brk": (12, 214), "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226),
    "mremap": (25, 216), "madvise": (28, 233), "arch_prctl": (158, _NONE), "set_tid_address": (218, 96),
    "set_robust_list": (273, 99), "rseq": (334, 293), "prlimit64": (302, 261), "getrandom": (318, 278),
    "futex": (202, 98), "prctl": (157, 167), "capget": (125, 90), "exit": (60, 93), "exit_group": (231, 94),
    # Files, of which it sees few.
    "openat": (257, 56), "read": (0, 63), "pread64": (17, 67), "readv": (19, 65), "write": (1, 64), "writev": (20, 66),
    "close": (3, 57), "close_range": (436, 436), "fstat": (5, 80), "newfstatat": (262, 79), "statx": (332, 291),
    "access": (21, _NONE), "faccessat": (269, 48), "faccessat2": (439, 439), "lseek": (8, 62), "getcwd": (79, 17),
    "readlink": (89, _NONE), "readlinkat": (267, 78), "getdents64": (217, 61), "chdir": (80, 49), "umask": (95, 166),
    "pipe2": (293, 59), "dup": (32, 23), "dup2": (33, _NONE), "dup3": (292, 24), "fcntl": (72, 25),
    "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "inotify_rm_watch": (255, 28),
    # Signals, time and waiting.
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
    "restart_syscall": (219, 128), "tgkill": (234, 131), "alarm": (37, _NONE), "setitimer": (38, 103),
    "time": (201, _NONE), "gettimeofday": (96, 169), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "nanosleep": (35, 101), "poll": (7, _NONE), "ppoll": (271, 73),
    "select": (23, _NONE), "pselect6": (270, 72),
    # Who and where it is.
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "getgroups": (115, 158), "uname": (63, 160), "sysinfo": (99, 179),
    # The network.
    "bind": (49, 200), "connect": (42, 203), "getsockname": (51, 204), "getpeername": (52, 205), "sendto": (44, 206),
    "sendmsg": (46, 211), "sendmmsg": (307, 269), "recvfrom": (45, 207), "recvmsg": (47, 212),
    "setsockopt": (54, 208), "getsockopt": (55, 209), "ioctl": (16, 29),
}  # fmt: skip
SOCKET = (41, 198)
#: What wiring a Pod never needs, though root may do it: changing the kernel and the machine, and other processes.
NEVER = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "open_by_handle_at": (304, 265), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "iopl": (172, _NONE),
    "ioperm": (173, _NONE), "mknodat": (259, 33), "mknod": (133, _NONE),
}  # fmt: skip
#: From here on x86_64 has the same calls once more, for another ABI.
_SECOND_ABI = 0x40000000
_AF_INET, _AF_INET6, _AF_NETLINK, _SOCK_DGRAM, _SOCK_RAW, _ICMPV6, _ROUTES = 2, 10, 16, 2, 3, 58, 0
#: Family, type and protocol of the sockets that it may make.
SOCKETS = (
    (_AF_INET, _SOCK_DGRAM, _NONE),
    (_AF_INET6, _SOCK_DGRAM, _NONE),
    (_AF_INET6, _SOCK_RAW, _ICMPV6),
    (_AF_NETLINK, _NONE, _ROUTES),
)
_TYPE_MASK = 0xF

_LOAD, _EQUAL, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000

Instruction = tuple[int, int, int, int]


def program(machine: str) -> bytes:
    """In the kernel's form; nothing for a machine whose calls we do not know."""
    if machine not in MACHINES:
        return b""
    architecture, column = MACHINES[machine]
    instructions = _start(architecture)
    for number in _numbers(CALLS, column):
        instructions += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    sockets = _sockets()
    instructions += [(_EQUAL, 0, len(sockets), SOCKET[column]), *sockets]
    # As a kernel that does not know the call: the C library then takes an older one.
    instructions.append((_RETURN, 0, 0, _REFUSE | errno.ENOSYS))
    return _packed(instructions)


def refusing(machine: str) -> bytes:
    """All calls but those of `NEVER`."""
    if machine not in MACHINES:
        return b""
    architecture, column = MACHINES[machine]
    refuse: Instruction = (_RETURN, 0, 0, _REFUSE | errno.EPERM)
    instructions = [*_start(architecture), (_AT_LEAST, 0, 1, _SECOND_ABI), refuse]
    for number in _numbers(NEVER, column):
        instructions += [(_EQUAL, 0, 1, number), refuse]
    return _packed([*instructions, (_RETURN, 0, 0, _ALLOW)])


def _numbers(calls: dict[str, tuple[int, int]], column: int) -> list[int]:
    return [call[column] for call in calls.values() if call[column] != _NONE]


def _start(architecture: int) -> list[Instruction]:
    return [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]


def _packed(instructions: list[Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


def _sockets() -> list[Instruction]:
    found: list[Instruction] = []
    for wanted in SOCKETS:
        found += _when(wanted)
    return [*found, (_RETURN, 0, 0, _REFUSE | errno.EPERM)]


def _when(wanted: tuple[int, int, int]) -> list[Instruction]:
    """Allows a socket whose arguments are these; goes on behind itself otherwise."""
    checks: list[list[Instruction]] = []
    for position, value in enumerate(wanted):
        if value != _NONE:
            load: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS + 8 * position)]
            checks.append([*load, (_AND, 0, 0, _TYPE_MASK)] if position == 1 else load)
            checks[-1].append((_EQUAL, 0, 0, value))
    whole = [*(each for check in checks for each in check), (_RETURN, 0, 0, _ALLOW)]
    return [
        (code, yes, len(whole) - 1 - place if code == _EQUAL else no, value)
        for place, (code, yes, no, value) in enumerate(whole)
    ]
