"""How an exporter is reached: by its external link, at an address that the user gives, or over the API server."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import click

from virt_core.apis import exportplan
from virt_core.apis.export import VirtualMachineExport, VirtualMachineExportLink
from virt_core.kube.connect import Connection
from virt_core.kube.errors import ApiError
from virtctl.stream.websocket import HandshakeRefused

_TIMEOUT_S = 60.0
_PORT = 443


class Broken(Exception):
    """The connection ended before everything was there, or could not be had; it may go better the next time."""


@dataclass(frozen=True, slots=True)
class Way:
    """`dial` gives a socket to the host of a link."""

    link: VirtualMachineExportLink
    dial: Callable[[str, int], socket.socket]
    insecure: bool
    words: str

    def ask(self, url: str, token: str, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
        """Raises Broken. Whoever reads the answer closes it."""
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORT
        connection = _Dialled(host, port, self, _context(self.link.cert, self.insecure))
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        try:
            connection.request("GET", path, headers={exportplan.TOKEN_HEADER: token, **(headers or {})})
            return connection.getresponse()
        except (OSError, http.client.HTTPException, ApiError) as error:
            connection.close()
            raise Broken(f"{host} cannot be asked: {error}") from error
        except HandshakeRefused as error:
            connection.close()
            raise Broken(f"the exporter's port cannot be forwarded: {error.message}") from error


class _Dialled(http.client.HTTPSConnection):
    def __init__(self, host: str, port: int, way: Way, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=_TIMEOUT_S, context=context)
        self._way, self._tls = way, context

    def connect(self) -> None:
        plain = self._way.dial(self.host, self.port)
        plain.settimeout(_TIMEOUT_S)
        try:
            self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


def _context(authority: str, insecure: bool) -> ssl.SSLContext:
    context = (
        ssl.create_default_context(cadata=authority) if authority and not insecure else ssl.create_default_context()
    )
    if insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def choose(
    export: VirtualMachineExport, connection: Connection, *, forward: bool, service_url: str, insecure: bool
) -> Way:
    """The external link, unless the user wants another way or there is none."""
    links = export.status.links
    if links is None or links.internal is None:
        raise click.ClickException(f"VirtualMachineExport {export.metadata.name} has no links")
    if service_url:
        host, port = _address(service_url)
        return Way(links.internal, lambda *_: socket.create_connection((host, port), _TIMEOUT_S), insecure, service_url)
    if links.external is not None and not forward:
        return Way(links.external, lambda *to: socket.create_connection(to, _TIMEOUT_S), insecure, "its external link")
    pod, namespace = exportplan.pod_name(export.metadata.name), export.metadata.namespace
    words = "the API server" if forward else "the API server, since it has no external link"

    def dial(*_: object) -> socket.socket:
        from virtctl.stream.podport import dial as dial_pod

        return dial_pod(connection, namespace, pod, exportplan.PORT)

    return Way(links.internal, dial, insecure, words)


def _address(text: str) -> tuple[str, int]:
    parts = urlsplit(text if "//" in text else f"//{text}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise click.UsageError(f"--service-url {text!r}: {error}") from error
    if not host:
        raise click.UsageError(f"--service-url {text!r} names no host")
    return host, port or _PORT
