"""What a command needs of the cluster: a client, the namespace, and errors in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from virt_core.kube.client import KubeClient
from virt_core.kube.connect import ConnectError, Connection, load_connection
from virt_core.kube.errors import ApiError, Unauthorized, Unreachable
from virtctl.options import Settings


class Session:
    def __init__(self, settings: Settings) -> None:
        self.connection = _connect(settings)
        self.namespace = settings.namespace or self.connection.namespace
        self.client = KubeClient(self.connection, "virtctl", timeout_s=30.0)


def _connect(settings: Settings) -> Connection:
    connection = load_connection(settings.kubeconfig, settings.context)
    if settings.server:
        connection.server = settings.server.rstrip("/")
    return connection


@contextmanager
def session(settings: Settings) -> Iterator[Session]:
    """Errors that come out of the block end the command with one sentence and exit code 1."""
    if settings.verbose:
        from virt_core.runtime.logs import configure

        configure("virtctl", level="debug", light=True)
    try:
        opened = Session(settings)
        try:
            yield opened
        finally:
            opened.client.close()
    except ConnectError as error:
        raise click.ClickException(str(error)) from error
    except ApiError as error:
        raise click.ClickException(sentence(error)) from error


def sentence(error: ApiError) -> str:
    if isinstance(error, Unreachable):
        return f"{error}; is it running? (kubectl cluster-info, or virt-local status)"
    if isinstance(error, Unauthorized):
        return "the API server does not know you: check the user in your kubeconfig"
    causes = "; ".join(f"{cause.field}: {cause.message}" for cause in error.causes if cause.field)
    return causes if causes and causes not in str(error) else str(error)
