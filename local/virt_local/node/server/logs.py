"""Container logs: what conmon wrote, from where and as far as the caller wants, and on while it grows."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from aiohttp import web

from virt_core.runtime.inotify import IN_MODIFY, Inotify
from virt_core.runtime.times import parse_rfc3339
from virt_local.node.server.exec import Handler
from virt_local.node.server.lookup import Lookup, refuse

_BLOCK = 1 << 16
_LOOK_S = 1.0


@dataclass(frozen=True)
class LogOptions:
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: datetime | None = None
    limit: int | None = None


def parse_options(query: dict[str, str], now: datetime) -> LogOptions:
    try:
        seconds = _number(query, "sinceSeconds")
        since = now - timedelta(seconds=seconds) if seconds is not None else None
        if query.get("sinceTime"):
            since = parse_rfc3339(query["sinceTime"])
        return LogOptions(
            follow=_flag(query, "follow"),
            previous=_flag(query, "previous"),
            timestamps=_flag(query, "timestamps"),
            tail=_number(query, "tailLines"),
            since=since,
            limit=_number(query, "limitBytes"),
        )
    except ValueError as err:
        raise refuse(400, "BadRequest", str(err)) from err


def _flag(query: dict[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("true", "1")


def _number(query: dict[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdigit():
        raise ValueError(f"{name} must be a whole number, not {text!r}")
    return int(text)


def render_line(line: bytes, options: LogOptions) -> bytes:
    """One line of the file (time, stream, F or P, text) as the caller sees it; nothing if it is too old."""
    parts = line.rstrip(b"\n").split(b" ", 3)
    if len(parts) < 4:
        return b""
    stamp, _, kind, text = parts
    if options.since is not None and parse_stamp(stamp) < options.since:
        return b""
    prefix = _utc(stamp) + b" " if options.timestamps else b""
    return prefix + text + (b"" if kind == b"P" else b"\n")


def parse_stamp(stamp: bytes) -> datetime:
    """Nanoseconds are more than Python reads."""
    text = stamp.decode(errors="replace")
    head, dot, tail = text.partition(".")
    digits = tail[:9] if dot else ""
    return parse_rfc3339(f"{head}.{digits[:6]}{tail[9:]}" if dot else head)


def _utc(stamp: bytes) -> bytes:
    return stamp.removesuffix(b"+00:00") + b"Z" if stamp.endswith(b"+00:00") else stamp


def tail_offset(stream: BinaryIO, lines: int) -> int:
    """Where the last so many lines begin; reads backwards, so a long log costs nothing."""
    end = stream.seek(0, os.SEEK_END)
    position, missing = end, lines + 1
    while position > 0:
        size = min(_BLOCK, position)
        position -= size
        stream.seek(position)
        block = stream.read(size)
        if position + size == end and not block.endswith(b"\n"):
            missing -= 1
        for index in range(len(block) - 1, -1, -1):
            if block[index] == 10:
                missing -= 1
                if missing == 0:
                    return position + index + 1
    return 0


def whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines that are complete; the rest is read again later."""
    while True:
        begin = stream.tell()
        line = stream.readline()
        if not line.endswith(b"\n"):
            stream.seek(begin)
            return
        yield line


async def read_log(path: Path, options: LogOptions, ended: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The log's lines. With `follow`, waits for more until the container has ended."""
    left = options.limit
    with path.open("rb") as first, Inotify() as inotify:
        stream: BinaryIO = first
        stream.seek(tail_offset(stream, options.tail) if options.tail is not None else 0)
        inotify.watch(path, IN_MODIFY)
        while True:
            finished = ended()
            for line in whole_lines(stream):
                text = render_line(line, options)
                if left is not None:
                    text, left = text[:left], left - len(text)
                yield text
                if left is not None and left <= 0:
                    return
            if not options.follow or finished:
                return
            if _replaced(path, stream):
                stream = path.open("rb")
                inotify.watch(path, IN_MODIFY)
                continue
            await _changed(inotify)


def _replaced(path: Path, stream: BinaryIO) -> bool:
    """conmon begins a new file when the log has grown too long."""
    try:
        return path.stat().st_ino != os.fstat(stream.fileno()).st_ino
    except FileNotFoundError:
        return False


async def _changed(inotify: Inotify) -> None:
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    loop.add_reader(inotify.fileno(), event.set)
    try:
        await asyncio.wait_for(event.wait(), _LOOK_S)
        inotify.wait(0.0)
    except TimeoutError:
        pass  # Time to see whether the container has ended.
    finally:
        loop.remove_reader(inotify.fileno())


def logs_handler(lookup: Lookup, now: Callable[[], datetime]) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        options = parse_options(dict(request.query), now())
        found = lookup.container(request, previous=options.previous)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        path, record = Path(found.record.log_path), found.record
        if not path.exists():
            return web.Response(text="")
        await response.prepare(request)
        async for text in read_log(path, options, lambda: not record.running):
            if text:
                await response.write(text)
        await response.write_eof()
        return response

    return handle
