"""The gRPC server of automation/v1: TLS, reflection and health, in the event loop of the HTTPS server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import grpc
import grpc.aio
from aiohttp import web
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from virt_api.automation.front import CONNECTIONS, Front, bound
from virt_api.automation.guard import Guard
from virt_api.automation.service import Automation, Parts
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.logs import get_logger
from virt_protos.automation.v1 import automation_pb2, automation_pb2_grpc

log = get_logger(__name__)

SERVICE: str = automation_pb2.DESCRIPTOR.services_by_name["Automation"].full_name
_GRACE_S = 2.0
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 4 << 20),
    # A client may ping a quiet watch or console this often without being cut off.
    ("grpc.http2.min_ping_interval_without_data_ms", 5000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 30000),
    ("grpc.keepalive_timeout_ms", 10000),
    ("grpc.max_allowed_incoming_connections", 2 * CONNECTIONS.total),
    ("grpc.max_concurrent_streams", 128),
    # Of somebody who has connected and says nothing.
    ("grpc.server_handshake_timeout_ms", 10000),
    ("grpc.max_connection_idle_ms", 300000),
]


class AutomationServer:
    """A started server; lives in the event loop."""

    def __init__(self, server: Any, status: Any, front: Front, port: int) -> None:
        self._server, self._status, self._front, self.port = server, status, front, port

    async def stop(self) -> None:
        """Refuses new calls at once and cancels the running ones after a moment."""
        await self._status.enter_graceful_shutdown()
        self._front.refuse()
        await self._server.stop(_GRACE_S)
        self._front.stop()


def ensure_free(address: str) -> None:
    """So that a taken port is one sentence at the start. Raises OSError, ValueError."""
    bound(address).close()


async def start(address: str, tls: TlsFiles, parts: Parts) -> AutomationServer:
    """Raises OSError when the port is taken. Port 0: see `.port`."""
    listener, front = bound(address), Front()
    guard = Guard(parts.authenticator.by_token, front.address_of)
    server: Any = grpc.aio.server(interceptors=[guard], options=_OPTIONS)
    automation_pb2_grpc.add_AutomationServicer_to_server(Automation(parts), server)
    # Missing in the stubs.
    status = cast(Any, health).aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(status, server)
    reflection.enable_server_reflection((SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    # No client certificate is asked for: callers come with tokens.
    server.add_secure_port(f"unix:{front.inner}", tls.server_credentials())
    for name in ("", SERVICE):
        await status.set(name, health_pb2.HealthCheckResponse.SERVING)
    await server.start()
    port = await front.listen(listener)
    log.info("automation serving", address=address, automation_port=port)
    return AutomationServer(server, status, front, port)


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
