"""Requests as their connection sees them: each handler runs inside `in_turn`, and reads bodies by `read_body` only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import hdrs, web

from virt_api.problems import Problem
from virt_api.serving.connection import Connection
from virt_api.serving.crowd import Rank
from virt_api.serving.limits import Limits

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_DEFAULT = Limits()


def connection_of(request: web.Request) -> Connection | None:
    """None where nobody counts, and when it is gone already."""
    transport = request.transport
    protocol = transport.get_protocol() if transport is not None else None
    return protocol if isinstance(protocol, Connection) else None


def has_shown(request: web.Request, rank: Rank) -> None:
    """The caller is somebody: its connection is not among the first to go."""
    if (connection := connection_of(request)) is not None:
        connection.rank = max(connection.rank, rank)


@web.middleware
async def in_turn(request: web.Request, handler: Handler) -> web.StreamResponse:
    connection = connection_of(request)
    if connection is None:
        return await handler(request)
    connection.asked(stream=hdrs.UPGRADE in request.headers)
    try:
        response = await handler(request)
        if not request.content.is_eof() and not isinstance(response, web.WebSocketResponse):
            response.force_close()
        return response
    finally:
        connection.answered(whole=request.content.is_eof())


def flowing(request: web.Request) -> None:
    """Its body is passed on as it comes, and how long that may take is the handler's affair."""
    if (connection := connection_of(request)) is not None:
        connection.flowing()


async def read_body(request: web.Request, limit: int) -> bytes:
    """Raises Problem: too long, too slow or packed."""
    if request.headers.get(hdrs.CONTENT_ENCODING, "identity") != "identity":
        # A few packed bytes can stand for gigabytes.
        raise Problem(415, "the body must not be compressed")
    if (request.content_length or 0) > limit:
        raise _too_long(limit)
    connection = connection_of(request)
    limits = connection.limits if connection is not None else _DEFAULT
    if connection is not None:
        connection.reading()
    try:
        async with asyncio.timeout(limits.body_s):
            return await _whole(request, limit)
    except TimeoutError as error:
        raise Problem(408, f"the body did not come within {limits.body_s:.0f} s") from error
    finally:
        if connection is not None:
            connection.read()


async def _whole(request: web.Request, limit: int) -> bytes:
    body = bytearray()
    while chunk := await request.content.readany():
        body += chunk
        if len(body) > limit:
            raise _too_long(limit)
    return bytes(body)


def _too_long(limit: int) -> Problem:
    return Problem(413, f"the body must not be longer than {limit} bytes")
