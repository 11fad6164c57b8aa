"""virt-api's two certificates, from directories that somebody else fills, or that we fill from Secrets ourselves.

The Secrets of a new installation come from virt-controller, a moment after we have started. Until then the server
answers with a certificate that nobody trusts: probes, which trust everybody, learn from it what we wait for.
"""

from __future__ import annotations

from dataclasses import dataclass

from virt_core.apis import names
from virt_core.kube.client import KubeClient
from virt_core.kube.secretfiles import SecretFiles
from virt_core.rpc.tls import TlsFiles, TlsMaterial
from virt_core.runtime import keymaker
from virt_core.runtime.health import Check
from virt_core.runtime.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class Source:
    """A directory, and the Secret that it is filled from; without one somebody else fills it."""

    directory: str
    secret: str = ""


class Certificates:
    def __init__(self, client: KubeClient, namespace: str, serving: Source, calls: Source) -> None:
        """Raises OSError and ValueError when a directory without a Secret holds nothing good."""
        self._secrets: dict[str, SecretFiles] = {}
        for source in (serving, calls):
            if source.secret:
                self._secrets[source.secret] = SecretFiles(
                    client, namespace, source.secret, source.directory, on_change=self._changed
                )
                self._secrets[source.secret].fetch()
        self.serving = TlsFiles(
            serving.directory,
            name=names.CERTS_API_SERVING,
            ca=False,
            until_there=stand_in if serving.secret else None,
        )
        self.calls = TlsFiles(calls.directory, name=names.CERTS_API_CLIENT, may_come=bool(calls.secret))

    def run_under(self, supervisor: Supervisor) -> None:
        for name, secret in self._secrets.items():
            supervisor.thread(f"secret-{name}", secret.run)

    def checks(self) -> dict[str, Check]:
        return {f"secret {name}": secret.ready for name, secret in self._secrets.items()}

    def _changed(self) -> None:
        """Reads the new files now, for the metric; servers would do it with the next connection."""
        for files in (getattr(self, "serving", None), getattr(self, "calls", None)):
            if files is not None:
                files.is_there()


def stand_in() -> TlsMaterial:
    return TlsMaterial(*keymaker.stand_in("virt-api-waits-for-its-certificate"))
