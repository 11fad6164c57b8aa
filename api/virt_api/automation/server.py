"""The gRPC server of automation/v1: TLS, reflection and health, in the event loop of the HTTPS server."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import grpc
import grpc.aio
from aiohttp import web
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from virt_api.automation.guard import Guard
from virt_api.automation.service import Automation, Parts
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.health import split_address
from virt_core.runtime.logs import get_logger
from virt_protos.automation.v1 import automation_pb2, automation_pb2_grpc

log = get_logger(__name__)

SERVICE: str = automation_pb2.DESCRIPTOR.services_by_name["Automation"].full_name
_GRACE_S = 2.0
#: Of all callers; how many calls they may have is the guard's to say.
_CONNECTIONS = 1024
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 4 << 20),
    # A client may ping a quiet watch or console this often without being cut off.
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 30000),
    ("grpc.keepalive_timeout_ms", 10000),
    ("grpc.max_allowed_incoming_connections", _CONNECTIONS),
    ("grpc.max_concurrent_streams", 128),
    # Of somebody who has connected and says nothing.
    ("grpc.server_handshake_timeout_ms", 10000),
    ("grpc.max_connection_idle_ms", 300000),
]


class AutomationServer:
    """A started server; lives in the event loop."""

    def __init__(self, server: Any, status: Any, port: int) -> None:
        self._server, self._status, self.port = server, status, port

    async def stop(self) -> None:
        """Refuses new calls at once and cancels the running ones after a moment."""
        await self._status.enter_graceful_shutdown()
        await self._server.stop(_GRACE_S)


def ensure_free(address: str) -> None:
    """So that a taken port is one sentence at the start. Raises OSError, ValueError."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise OSError(f"cannot listen on {address}: {os.strerror(error.errno or 0)}") from error


async def start(address: str, tls: TlsFiles, parts: Parts) -> AutomationServer:
    """Raises OSError when the port is taken. Port 0: see `.port`."""
    guard = Guard(parts.authenticator.by_token)
    server: Any = grpc.aio.server(interceptors=[guard], options=_OPTIONS)
    automation_pb2_grpc.add_AutomationServicer_to_server(Automation(parts), server)
    # Missing in the stubs.
    status = cast(Any, health).aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        # No client certificate is asked for: callers come with tokens.
        port = server.add_secure_port(address, tls.server_credentials())
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {error}") from error
    for name in ("", SERVICE):
        await status.set(name, health_pb2.HealthCheckResponse.SERVING)
    await server.start()
    log.info("automation serving", address=address, automation_port=port)
    return AutomationServer(server, status, port)


def beside(
    address: str, tls: TlsFiles, parts: Parts, started: Callable[[AutomationServer], object] = lambda _: None
) -> Callable[[web.Application], AsyncIterator[None]]:
    """For `Application.cleanup_ctx`: runs the server as long as the application runs."""

    async def context(_: web.Application) -> AsyncIterator[None]:
        server = await start(address, tls, parts)
        started(server)
        yield
        await server.stop()
        await parts.api.close()

    return context
