"""Listening sockets for the application, with TLS that asks for (but does not demand) a client certificate."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from aiohttp import web

_KEEPALIVE_S = 75.0
_SHUTDOWN_S = 5.0


class Listening(Protocol):
    """The options that serving reads."""

    listen: list[str]
    tls_cert: str
    tls_key: str
    client_ca: str


@asynccontextmanager
async def serve(app: web.Application, options: Listening) -> AsyncIterator[list[str]]:
    """Serves while the context is open. Yields the addresses as they are, for ports that were asked for as 0."""
    runner = web.AppRunner(
        app, access_log=None, keepalive_timeout=_KEEPALIVE_S, shutdown_timeout=_SHUTDOWN_S, handler_cancellation=False
    )
    await runner.setup()
    context = tls_context(options)
    try:
        for address in options.listen:
            host, _, port = address.rpartition(":")
            site = web.TCPSite(runner, host.strip("[]"), int(port), ssl_context=context, reuse_address=True)
            await site.start()
        yield [f"{address[0]}:{address[1]}" for address in runner.addresses]
    finally:
        await runner.cleanup()


def tls_context(options: Listening) -> ssl.SSLContext | None:
    """None serves plain HTTP: only for tests that look at nothing else."""
    if not options.tls_cert:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(options.tls_cert, options.tls_key)
    context.set_alpn_protocols(["http/1.1"])
    if options.client_ca:
        context.load_verify_locations(options.client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
