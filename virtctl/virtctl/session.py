"""What a command needs of the cluster: a client, the namespace, and errors in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from virt_core.kube.connect import ConnectError, Connection, load_connection
from virt_core.kube.errors import ApiError, Unauthorized, Unreachable
from virtctl.options import Settings

_UNITS = {"": 1.0, "s": 1.0, "ms": 0.001, "m": 60.0, "h": 3600.0}
_TIMEOUT_S = 30.0


if TYPE_CHECKING:
    from virt_core.kube.client import KubeClient


class Session:
    def __init__(self, settings: Settings) -> None:
        self.connection = _connect(settings)
        self.namespace = settings.namespace or self.connection.namespace
        self._timeout_s = _seconds(settings.request_timeout)

    @cached_property
    def client(self) -> KubeClient:
        """Only when it is used: the streams, which ssh starts as its proxy, do without it."""
        from virt_core.kube.client import KubeClient

        return KubeClient(self.connection, "virtctl", timeout_s=self._timeout_s)

    def close(self) -> None:
        if "client" in self.__dict__:
            self.client.close()


def _connect(settings: Settings) -> Connection:
    connection = load_connection(settings.kubeconfig, settings.context)
    if settings.server:
        connection.server = settings.server.rstrip("/")
    connection.tls_server_name = settings.tls_server_name or connection.tls_server_name
    if settings.insecure_skip_tls_verify:
        connection.insecure = True
    try:
        _identify(connection, settings)
    except OSError as error:
        raise ConnectError(f"cannot read {error.filename}: {error.strerror}") from error
    return connection


def _identify(connection: Connection, settings: Settings) -> None:
    """The flags come instead of the context's user: a certificate beside a token would win on the server's side."""
    if settings.token or settings.client_certificate:
        connection.token, connection.token_file, connection.basic_auth = settings.token or "", "", ""
        connection.cert_pem, connection.key_pem = b"", b""
    if settings.certificate_authority:
        connection.ca_pem = Path(settings.certificate_authority).read_bytes()
    if settings.client_certificate:
        connection.cert_pem = Path(settings.client_certificate).read_bytes()
        connection.key_pem = Path(settings.client_key or settings.client_certificate).read_bytes()
    if settings.as_user:
        connection.impersonate = {"Impersonate-User": settings.as_user}
        if settings.as_group:
            connection.impersonate["Impersonate-Group"] = settings.as_group


def _seconds(text: str | None) -> float:
    """`10s`, `2m`, `10`; 0 means the default, as for kubectl."""
    if not text:
        return _TIMEOUT_S
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)?", text)
    if match is None:
        raise click.UsageError(f"--request-timeout {text!r} is not a duration: write e.g. 10s, 2m or 1h")
    return float(match[1]) * _UNITS[match[2] or ""] or _TIMEOUT_S


@contextmanager
def session(settings: Settings) -> Iterator[Session]:
    """Errors that come out of the block end the command with one sentence and exit code 1.

    A server of another version may be the reason, so it is asked for it, and a warning says so.
    """
    if settings.verbose:
        from virt_core.runtime.logs import configure

        configure("virtctl", level="debug", light=True)
    try:
        opened = Session(settings)
        try:
            yield opened
        except (ApiError, click.ClickException) as error:
            _look_at_versions(opened, error)
            raise
        finally:
            opened.close()
    except ConnectError as error:
        raise click.ClickException(str(error)) from error
    except ApiError as error:
        raise click.ClickException(sentence(error)) from error


def _look_at_versions(opened: Session, error: Exception) -> None:
    if isinstance(error, (Unreachable, Unauthorized, click.UsageError)):
        return
    from virtctl.version import mismatch, server_version

    try:
        warning = mismatch(server_version(opened.client, timeout_s=3.0))
    except (ApiError, click.ClickException):
        return  # The error that we came with is the one to show.
    if warning:
        click.echo(warning, err=True)


def sentence(error: ApiError) -> str:
    if isinstance(error, Unreachable):
        return f"{error}; is it running? (kubectl cluster-info, or virt-local status)"
    if isinstance(error, Unauthorized) and error.message in ("", "Unauthorized"):
        return "the API server does not know you: check the user in your kubeconfig"
    causes = "; ".join(f"{cause.field}: {cause.message}" for cause in error.causes if cause.field)
    return causes if causes and causes not in str(error) else str(error)
