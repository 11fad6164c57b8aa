"""When the node service listens: at once, or as soon as there is a certificate for it.

virt-controller signs the certificate of each node; a node that waits for its own must still adopt and run its VMs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from virt_core.apis import names
from virt_core.kube.client import KubeClient
from virt_core.rpc.server import RpcServer
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_handler.service.node_certificate import NodeCertificate
from virt_handler.service.node_service import NodeServicer, serve

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files of the node service, and who fills them, if we do that ourselves."""

    files: TlsFiles
    own: NodeCertificate | None = None


def certificates(  # noqa: PLR0917 - whose they are, and where they go
    client: KubeClient, namespace: str, node: str, directory: str, clock: Clock, refused: Callable[[str], object]
) -> Certificates:
    """Asks for a certificate of this node."""
    files = TlsFiles(directory, name=names.CERTS_HANDLER, may_come=True)
    # Read at once when it changes, for the metric; the server would do it with the next connection.
    return Certificates(
        files, NodeCertificate(client, namespace, node, directory, clock, refused, on_change=files.is_there)
    )


def given_certificates(directory: str) -> Certificates:
    """Somebody else fills the directory; the files must be there. Raises OSError, ValueError."""
    return Certificates(TlsFiles(directory, name=names.CERTS_HANDLER))


class NodeServer:
    """Serves as soon as there is a certificate: until then the node does all its other work."""

    def __init__(
        self, address: str, certificates: Certificates, make: Callable[[TlsFiles], NodeServicer], api_name: str
    ) -> None:
        """With given files it serves at once, so that a taken port fails the start-up."""
        self.certificates, self._address, self._make, self._api_name = certificates, address, make, api_name
        self._server = self._serve() if certificates.own is None else None

    @property
    def port(self) -> int:
        """0 until it listens."""
        return self._server.port if self._server is not None else 0

    def ready(self) -> str | None:
        """A health check."""
        if self._server is not None:
            return None
        waits = self.certificates.own.ready() if self.certificates.own is not None else None
        return waits or "not started yet"

    def run(self, stop: threading.Event) -> None:
        """Blocks until the stop. Raises OSError when the port is taken."""
        own = self.certificates.own
        if self._server is None and own is not None and own.wait(stop):
            self._server = self._serve()
            log.info("node service started", address=self._address)
        if self._server is not None:
            self._server.run(stop)

    def _serve(self) -> RpcServer:
        files = self.certificates.files
        return serve(self._address, files, self._make(files), self._api_name)
