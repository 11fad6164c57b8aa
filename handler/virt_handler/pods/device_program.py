"""The kernel's program that says which devices a cgroup (version 2) may use, with our own questions before it.

A container runtime writes such a program from its rules and nobody can read the rules back; but the program itself can
be read. So a few instructions are put before it that say yes to one device, and taken off again. Nothing has to be
remembered: what is ours is seen in the program.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from pathlib import Path

_SYS_BPF = {"x86_64": 321}.get(platform.machine(), 280)
_PROG_LOAD, _PROG_ATTACH, _GET_FD_BY_ID, _GET_INFO, _PROG_QUERY = 5, 8, 13, 15, 16
_TYPE_CGROUP_DEVICE, _ATTACH_DEVICE = 15, 6
_ALLOW_MULTI, _REPLACE = 2, 4
_MOST_PROGRAMS, _MOST_INSTRUCTIONS = 16, 4096
_SIZE = 8
_BLOCK = 1
#: In the unused immediate of our first instruction: whose it is.
_MARK = 0x76706F64

_libc = ctypes.CDLL(None, use_errno=True)


def change(cgroup: Path, major: int, minor: int, *, allowed: bool) -> None:
    """Without a program everything is allowed, and nothing is to be done."""
    directory = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for number in _attached(directory):
            _change(directory, number, (major, minor), allowed=allowed)
    finally:
        os.close(directory)


def _change(directory: int, number: int, device: tuple[int, int], *, allowed: bool) -> None:
    old = _bpf(_GET_FD_BY_ID, struct.pack("<III", number, 0, 0))
    try:
        code = _code(old)
        devices, rest = split(code)
        wanted = (devices | {device}) if allowed else devices - {device}
        if wanted == devices:
            return
        new = _load(joined(wanted, rest))
        try:
            flags = _ALLOW_MULTI | _REPLACE
            _bpf(_PROG_ATTACH, struct.pack("<IIIII", directory, new, _ATTACH_DEVICE, flags, old))
        finally:
            os.close(new)
    finally:
        os.close(old)


def _instruction(code: int, registers: int = 0, offset: int = 0, immediate: int = 0) -> bytes:
    return struct.pack("<BBhi", code, registers, offset, immediate)


def question(device: tuple[int, int]) -> bytes:
    """If it is about this block device: yes. Registers 2 and 0 belong to nobody yet."""
    major, minor = device
    return b"".join(
        [
            _instruction(0xB7, 0x02, 0, _MARK),  # r2 = mark
            _instruction(0x61, 0x12, 0, 0),  # r2 = access and type
            _instruction(0x57, 0x02, 0, 0xFFFF),  # r2 = type
            _instruction(0x55, 0x02, 6, _BLOCK),  # not a block device: on
            _instruction(0x61, 0x12, 4, 0),  # r2 = major
            _instruction(0x55, 0x02, 4, major),
            _instruction(0x61, 0x12, 8, 0),  # r2 = minor
            _instruction(0x55, 0x02, 2, minor),
            _instruction(0xB7, 0x00, 0, 1),  # r0 = yes
            _instruction(0x95),  # end
        ]
    )


_LENGTH = len(question((0, 0)))


def split(code: bytes) -> tuple[set[tuple[int, int]], bytes]:
    """The devices of our own questions, and the program behind them."""
    devices: set[tuple[int, int]] = set()
    while len(code) > _LENGTH:
        device = tuple(struct.unpack_from("<i", code, at * _SIZE + 4)[0] for at in (5, 7))
        if code[:_LENGTH] != question((device[0], device[1])):
            break
        devices.add((device[0], device[1]))
        code = code[_LENGTH:]
    return devices, code


def joined(devices: set[tuple[int, int]], rest: bytes) -> bytes:
    return b"".join(question(device) for device in sorted(devices)) + rest


def _attached(directory: int) -> list[int]:
    numbers = (ctypes.c_uint32 * _MOST_PROGRAMS)()
    query = bytearray(struct.pack("<IIIIQI", directory, _ATTACH_DEVICE, 0, 0, ctypes.addressof(numbers), len(numbers)))
    buffer = (ctypes.c_char * 64).from_buffer_copy(bytes(query).ljust(64, b"\0"))
    _raw(_PROG_QUERY, buffer)
    count = struct.unpack_from("<I", bytes(buffer), 24)[0]
    return list(numbers[:count])


def _code(program: int) -> bytes:
    code = ctypes.create_string_buffer(_MOST_INSTRUCTIONS * _SIZE)
    # type, id, tag, lengths (compiled, plain), where to put them
    info = bytearray(256)
    struct.pack_into("<IQQ", info, 20, len(code), 0, ctypes.addressof(code))
    held = (ctypes.c_char * len(info)).from_buffer(info)
    _bpf(_GET_INFO, struct.pack("<IIQ", program, len(info), ctypes.addressof(held)))
    length = struct.unpack_from("<I", info, 20)[0]
    if not 0 < length <= len(code):
        raise OSError(f"the device program of the container cannot be read: it says that it has {length} bytes")
    return code.raw[:length]


def _load(code: bytes) -> int:
    text, licence = ctypes.create_string_buffer(code, len(code)), ctypes.create_string_buffer(b"Apache")
    where, words = ctypes.addressof(text), ctypes.addressof(licence)
    return _bpf(_PROG_LOAD, struct.pack("<IIQQ", _TYPE_CGROUP_DEVICE, len(code) // _SIZE, where, words))


def _bpf(command: int, attributes: bytes) -> int:
    return _raw(command, (ctypes.c_char * 128).from_buffer_copy(attributes.ljust(128, b"\0")))


def _raw(command: int, buffer: ctypes.Array[ctypes.c_char]) -> int:
    result: int = _libc.syscall(_SYS_BPF, command, buffer, ctypes.sizeof(buffer))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)} (BPF command {command})")
    return result
