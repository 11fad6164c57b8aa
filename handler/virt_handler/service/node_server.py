"""When the node service listens: at once, or as soon as there is a certificate for it.

The certificates of a new installation come from virt-controller; a node that waits for its own must still adopt and run
its VMs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from virt_core.apis import names
from virt_core.kube.client import KubeClient
from virt_core.kube.secretfiles import SecretFiles
from virt_core.rpc.server import RpcServer
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.logs import get_logger
from virt_handler.service.node_service import NodeServicer, serve

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files of the node service, and the Secret that they are written from, if we do that ourselves."""

    files: TlsFiles
    secret: SecretFiles | None = None


def certificates(client: KubeClient, namespace: str, directory: str, secret: str) -> Certificates:
    """Without a Secret the files must be there. Raises OSError, ValueError."""
    if not secret:
        return Certificates(TlsFiles(directory, name=names.CERTS_HANDLER))
    files = TlsFiles(directory, name=names.CERTS_HANDLER, may_come=True)
    # Read at once when it changes, for the metric; the server would do it with the next connection.
    return Certificates(files, SecretFiles(client, namespace, secret, directory, on_change=files.is_there))


class NodeServer:
    """Serves as soon as there is a certificate: until then the node does all its other work."""

    def __init__(
        self, address: str, certificates: Certificates, make: Callable[[TlsFiles], NodeServicer], api_name: str
    ) -> None:
        """Without a Secret it serves at once, so that a taken port fails the start-up."""
        self.certificates, self._address, self._make, self._api_name = certificates, address, make, api_name
        self._server = self._serve() if certificates.secret is None else None

    @property
    def port(self) -> int:
        """0 until it listens."""
        return self._server.port if self._server is not None else 0

    def ready(self) -> str | None:
        """A health check."""
        if self._server is not None:
            return None
        waits = self.certificates.secret.ready() if self.certificates.secret is not None else None
        return waits or "not started yet"

    def run(self, stop: threading.Event) -> None:
        """Blocks until the stop. Raises OSError when the port is taken."""
        secret = self.certificates.secret
        if self._server is None and secret is not None and (secret.fetch() or secret.wait(stop)):
            self._server = self._serve()
            log.info("node service started", address=self._address)
        if self._server is not None:
            self._server.run(stop)

    def _serve(self) -> RpcServer:
        files = self.certificates.files
        return serve(self._address, files, self._make(files), self._api_name)
