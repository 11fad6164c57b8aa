"""Port-forward: connections to ports of a Pod, two channels for each port (data and error)."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path

from aiohttp import web

from virt_local.node import kernel
from virt_local.node.server.channels import V4, Channels, accept, check_protocol
from virt_local.node.server.exec import Handler
from virt_local.node.server.lookup import Lookup, refuse

_CHUNK = 1 << 15
_CONNECT_S = 10.0
_MAX_PORTS = 16


def forward_handler(lookup: Lookup, netns: Path) -> Handler:
    """`netns` is the directory that holds the Pods' network namespaces."""

    async def handle(request: web.Request) -> web.StreamResponse:
        pod, state = lookup.pod(request)
        check_protocol(request, (V4,))
        ports = _ports(request)
        if state is None or state.sandbox is None or not state.sandbox.attached:
            raise refuse(400, "BadRequest", f'pod "{pod.metadata.name}" is not running')
        place = None if state.sandbox.host_network else netns / state.uid
        channels = await accept(request, (V4,))
        writers: dict[int, asyncio.StreamWriter] = {}
        tasks: list[asyncio.Task[None]] = []
        try:
            for index, port in enumerate(ports):
                tasks += await _open(channels, index, port, place, writers)
            await _until_over(asyncio.create_task(_up(channels, writers)), tasks)
        finally:
            for task in tasks:
                task.cancel()
            for writer in writers.values():
                writer.close()
        await channels.close()
        return channels.response

    return handle


async def _until_over(up: asyncio.Task[None], down: list[asyncio.Task[None]]) -> None:
    """The client has gone, or everything in the Pod has: who only listens is told by the end of the websocket."""
    ends = [up]
    if down:
        ends.append(asyncio.create_task(_all(down)))
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in ends:
            task.cancel()


async def _all(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)


def _ports(request: web.Request) -> list[int]:
    words = [
        word for value in request.query.getall("port", request.query.getall("ports", [])) for word in value.split(",")
    ]
    if not words or len(words) > _MAX_PORTS or not all(word.isdigit() and 0 < int(word) < 65536 for word in words):
        raise refuse(400, "BadRequest", "name the ports to forward as port=NUMBER")
    return [int(word) for word in words]


async def _open(
    channels: Channels, index: int, port: int, netns: Path | None, writers: dict[int, asyncio.StreamWriter]
) -> list[asyncio.Task[None]]:
    """As the protocol wants it, both channels first name their port."""
    data, error = 2 * index, 2 * index + 1
    for channel in (data, error):
        await channels.send(channel, struct.pack("<H", port))
    try:
        sock = await asyncio.to_thread(_connect, port, netns)
    except OSError as err:
        await channels.send(error, f"cannot connect to port {port}: {err}".encode())
        return []
    reader, writers[data] = await asyncio.open_connection(sock=sock)
    return [asyncio.create_task(_down(channels, data, reader))]


def _connect(port: int, netns: Path | None) -> socket.socket:
    """From inside the Pod, so that what listens on its loopback is reached as well."""

    def connect() -> socket.socket:
        return socket.create_connection(("localhost", port), _CONNECT_S)

    sock = connect() if netns is None else kernel.in_netns(netns, connect)
    sock.setblocking(False)
    return sock


async def _down(channels: Channels, channel: int, reader: asyncio.StreamReader) -> None:
    while data := await reader.read(_CHUNK):
        await channels.send(channel, data)


async def _up(channels: Channels, writers: dict[int, asyncio.StreamWriter]) -> None:
    while (message := await channels.receive()) is not None:
        writer = writers.get(message.channel)
        if writer is not None:
            writer.write(message.data)
            await writer.drain()
