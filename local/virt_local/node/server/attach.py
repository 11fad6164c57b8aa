"""Connects a websocket to the main process of a container, through conmon's socket."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import msgspec
from aiohttp import web

from virt_core.apis.base import decode
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
    success,
)
from virt_local.node.server.exec import Handler, Wish, wish_of
from virt_local.node.server.lookup import Found, Lookup

#: conmon marks each packet with the stream it came from.
_FROM_CONMON = {2: STDOUT, 3: STDERR}
_CHUNK = 1 << 13
_PACKET = 1 << 15


def attach_handler(lookup: Lookup) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        found, wish = lookup.running(request), wish_of(request)
        channels = await accept(request)
        bundle = lookup.bundle(found)
        try:
            sock = connect(bundle)
        except OSError as err:
            await channels.finish(failure(f"the container cannot be attached to: {err}"))
            return channels.response
        try:
            await _stream(channels, sock, bundle, wish)
        finally:
            sock.close()
        await channels.finish(_status(found))
        return channels.response

    return handle


def _status(found: Found) -> dict[str, object]:
    code = found.record.exit_code
    return exit_status(code) if code is not None else success()


def connect(bundle: Path) -> socket.socket:
    """By the directory's descriptor: the path itself may be too long for a socket address."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    directory = os.open(bundle, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.connect(f"/proc/self/fd/{directory}/attach")
    except OSError:
        sock.close()
        raise
    finally:
        os.close(directory)
    sock.setblocking(False)
    return sock


async def _stream(channels: Channels, sock: socket.socket, bundle: Path, wish: Wish) -> None:
    down = asyncio.create_task(_down(channels, sock, wish))
    up = asyncio.create_task(_up(channels, sock, bundle, wish))
    try:
        await asyncio.wait((down, up), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (down, up):
            task.cancel()
        await asyncio.gather(down, up, return_exceptions=True)


async def _down(channels: Channels, sock: socket.socket, wish: Wish) -> None:
    loop = asyncio.get_running_loop()
    wanted = {STDOUT: wish.stdout, STDERR: wish.stderr}
    while packet := await loop.sock_recv(sock, _PACKET):
        channel = _FROM_CONMON.get(packet[0], STDOUT)
        if wanted[channel]:
            await channels.send(channel, packet[1:])


async def _up(channels: Channels, sock: socket.socket, bundle: Path, wish: Wish) -> None:
    loop = asyncio.get_running_loop()
    while (message := await channels.receive()) is not None:
        if message.channel == RESIZE:
            send_resize(bundle, message.data)
        elif message.channel == CLOSE and message.data[:1] == bytes([STDIN]):
            sock.shutdown(socket.SHUT_WR)
        elif message.channel == STDIN and wish.stdin:
            for begin in range(0, len(message.data), _CHUNK):
                await loop.sock_sendall(sock, message.data[begin : begin + _CHUNK])


def send_resize(bundle: Path, data: bytes) -> None:
    """conmon listens for `1 HEIGHT WIDTH` on a FIFO."""
    try:
        size = decode(data, Size)
        fd = os.open(bundle / "ctl", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (msgspec.MsgspecError, OSError):
        return
    try:
        os.write(fd, f"1 {size.height} {size.width}\n".encode())
    finally:
        os.close(fd)
