"""Passes an ordinary request to another server, both bodies as streams."""

from __future__ import annotations

import ssl

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from virt_local.apiserver import errors
from virt_local.apiserver.proxy.headers import returned

_CHUNK = 64 * 1024
_CONNECT_S = 10.0


def make_session() -> aiohttp.ClientSession:
    """No limit on the whole: a watch or a followed log lasts as long as its reader."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)


async def forward(
    session: aiohttp.ClientSession,
    request: web.Request,
    url: str,
    *,
    headers: CIMultiDict[str],
    tls: ssl.SSLContext,
    server_name: str | None = None,
) -> web.StreamResponse:
    """Raises ApiError 503 when the other server cannot be reached."""
    body = request.content.iter_chunked(_CHUNK) if request.body_exists else None
    try:
        answer = await session.request(
            request.method,
            URL(url, encoded=True),
            headers=headers,
            data=body,
            ssl=tls,
            server_hostname=server_name,
            allow_redirects=False,
        )
    except (aiohttp.ClientError, OSError) as err:
        raise errors.unavailable(f"error trying to reach service: {err}") from err
    async with answer:
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=returned(answer.headers))
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response
