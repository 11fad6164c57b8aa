"""Runs a command in a container and connects it to a websocket."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from aiohttp import web

from virt_core.apis.base import decode
from virt_core.runtime.logs import get_logger
from virt_local.node.runtime.monitor import UMASK
from virt_local.node.runtime.runc import Runc
from virt_local.node.server.channels import (
    CLOSE,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    Channels,
    Size,
    accept,
    exit_status,
    failure,
)
from virt_local.node.server.lookup import Lookup, refuse

log = get_logger(__name__)

_CHUNK = 1 << 15
_KILL_S = 2.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Wish:
    """Which streams the caller wants."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


def wish_of(request: web.Request) -> Wish:
    def flag(*names: str) -> bool:
        return any(request.query.get(name, "").lower() in ("1", "true") for name in names)

    tty = flag("tty")
    return Wish(flag("input", "stdin"), flag("output", "stdout"), flag("error", "stderr") and not tty, tty)


def exec_handler(lookup: Lookup, runc: Runc) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        found, wish = lookup.running(request), wish_of(request)
        args = request.query.getall("command", [])
        if not args:
            raise refuse(400, "BadRequest", "you must specify at least 1 command for the container")
        command = runc.exec_command(found.record.id, args, terminal=wish.tty)
        channels = await accept(request)
        run = _run_tty if wish.tty else _run_piped
        try:
            code = await run(channels, command, wish)
        except OSError as err:
            await channels.finish(failure(f"the command cannot be run: {err}"))
        else:
            await channels.finish(exit_status(code))
        return channels.response

    return handle


async def _run_piped(channels: Channels, command: list[str], wish: Wish) -> int:
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe if wish.stdin else null, stdout=pipe, stderr=pipe, umask=UMASK
    )
    assert process.stdout is not None
    assert process.stderr is not None
    uplink = asyncio.create_task(_feed_pipe(channels, process))
    try:
        await asyncio.gather(
            _forward(process.stdout, channels, STDOUT if wish.stdout else None),
            _forward(process.stderr, channels, STDERR if wish.stderr else None),
        )
        return await process.wait()
    finally:
        uplink.cancel()
        await _end(process)


async def _feed_pipe(channels: Channels, process: asyncio.subprocess.Process) -> None:
    stdin = process.stdin
    while (message := await channels.receive()) is not None:
        if stdin is None:
            continue
        if message.channel == STDIN and message.data:
            stdin.write(message.data)
            await stdin.drain()
        elif message.channel == CLOSE and message.data[:1] == bytes([STDIN]):
            stdin.close()
    await _end(process)


async def _forward(stream: asyncio.StreamReader, channels: Channels, channel: int | None) -> None:
    while data := await stream.read(_CHUNK):
        if channel is not None:
            await channels.send(channel, data)


async def _end(process: asyncio.subprocess.Process) -> None:
    """runc hands the signal on to the command."""
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), _KILL_S)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _run_tty(channels: Channels, command: list[str], wish: Wish) -> int:
    master, slave = os.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, umask=UMASK
        )
    finally:
        os.close(slave)
    os.set_blocking(master, False)
    uplink = asyncio.create_task(_feed_terminal(channels, process, master, wish))
    try:
        await _forward_terminal(channels, master)
        return await process.wait()
    finally:
        uplink.cancel()
        await _end(process)
        os.close(master)


async def _feed_terminal(channels: Channels, process: asyncio.subprocess.Process, master: int, wish: Wish) -> None:
    while (message := await channels.receive()) is not None:
        if message.channel == RESIZE:
            resize(master, message.data)
            if process.returncode is None:
                process.send_signal(signal.SIGWINCH)
        elif message.channel == STDIN and wish.stdin:
            await _write_all(master, message.data)
    await _end(process)


async def _forward_terminal(channels: Channels, master: int) -> None:
    while True:
        await _ready(master, write=False)
        try:
            data = os.read(master, _CHUNK)
        except BlockingIOError:
            continue
        except OSError:
            return  # The other side of a terminal ends with EIO.
        if not data:
            return
        await channels.send(STDOUT, data)


async def _write_all(fd: int, data: bytes) -> None:
    while data:
        await _ready(fd, write=True)
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:
            continue


async def _ready(fd: int, *, write: bool) -> None:
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    add, remove = (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
    add(fd, event.set)
    try:
        await event.wait()
    finally:
        remove(fd)


def resize(master: int, data: bytes) -> None:
    try:
        size = decode(data, Size)
        packed = struct.pack("HHHH", size.height & 0xFFFF, size.width & 0xFFFF, 0, 0)
    except (msgspec.MsgspecError, struct.error):
        return
    fcntl.ioctl(master, termios.TIOCSWINSZ, packed)
