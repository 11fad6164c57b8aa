"""This node's own certificate: its key is made here and goes nowhere, and virt-controller signs for this node only.

Whom to trust and who signs is in a ConfigMap, which is watched. The files are swapped all at once, as with a mounted
Secret; what was there before a restart is good to begin with.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from virt_core.apis import names
from virt_core.apis.certificates import (
    DENIED,
    FAILED,
    USAGES_SERVER_CLIENT,
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
)
from virt_core.apis.config import ConfigMap
from virt_core.apis.meta import ObjectMeta
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Controller, Result
from virt_core.kube.errors import NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime import keymaker
from virt_core.runtime.certfacts import Facts
from virt_core.runtime.clock import Clock
from virt_core.runtime.keypair import BadPair, check_bundle, check_pair, read_facts
from virt_core.runtime.logs import get_logger
from virt_core.runtime.swap import write_files
from virt_handler.decisions.certificate import renewal

log = get_logger(__name__)

KEY = "certificate"
_LOOK_S = 0.2
_MAX_DELAY_S = 15.0
#: A refusal is not for ever: an administrator may have mended what was wrong.
_AFTER_REFUSAL_S = 30.0


@dataclass(frozen=True, slots=True)
class _Trust:
    bundle: bytes
    signer: Facts


@dataclass(frozen=True, slots=True)
class _Pending:
    """Asked for, not answered yet."""

    name: str
    key: bytes
    since: datetime


class NodeCertificate:
    """`run` and `watch` are thread bodies for the supervisor, `ready` is a health check."""

    def __init__(  # noqa: PLR0917 - whose it is, and where it goes
        self,
        client: KubeClient,
        namespace: str,
        node: str,
        directory: str | Path,
        clock: Clock,
        refused: Callable[[str], object] = lambda _why: None,
        *,
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        self._client, self._namespace, self._node = client, namespace, node
        self._directory, self._clock = Path(directory), clock
        self._refused, self._on_change = refused, on_change
        self._pending: _Pending | None = None
        self._there = threading.Event()
        where = f"ConfigMap {namespace}/{names.CERTS_BUNDLE}"
        self._problem = f"waiting for {where}, in which virt-controller's leader says whom to trust"
        if self._shown() is not None:
            self._there.set()
        self.queue = WorkQueue(clock, KEY, max_delay_s=_MAX_DELAY_S)
        self._informer = Informer(client, ConfigMap, namespace, field_selector=f"metadata.name={names.CERTS_BUNDLE}")
        self._informer.add_handler(lambda _new: self._look(), lambda _old, _new: self._look())

    def ready(self) -> str | None:
        """None once there is a certificate, even if a newer one is asked for: what we have works."""
        return None if self._there.is_set() else self._problem

    def is_there(self) -> bool:
        return self._there.is_set()

    def wait(self, stop: threading.Event) -> bool:
        """Until there is a certificate. False: stopped."""
        while not self._there.wait(_LOOK_S):
            if stop.is_set():
                return False
        return True

    def watch(self, stop: threading.Event) -> None:
        self._informer.run(stop)

    def run(self, stop: threading.Event) -> None:
        """Blocks until the stop."""
        Controller(KEY, self.queue, self.reconcile, 1, [self._informer]).run(stop)

    def _look(self) -> None:
        self.queue.add(KEY)

    def reconcile(self, _key: str) -> Result | None:
        """Raises ApiError."""
        trust = self._trust()
        if trust is None:
            return None
        shown = self._shown()
        if shown is not None:
            self._write({names.TLS_CA_FILE: trust.bundle, **shown})
            due = renewal(read_facts(shown[names.TLS_CERT_FILE]), trust.signer)
            if self._clock.now() < due:
                return Result((due - self._clock.now()).total_seconds())
        return self._ask(trust)

    def _ask(self, trust: _Trust) -> Result:
        """One step towards a new certificate."""
        pending = self._pending = self._pending or self._request()
        try:
            found = self._client.get(CertificateSigningRequest, pending.name)
        except NotFound:
            self._pending = None
            return Result(_LOOK_S)
        refusal = found.condition(DENIED) or found.condition(FAILED)
        if refusal is not None:
            return self._give_up(pending, refusal.message or refusal.reason)
        if not found.status.certificate:
            self._problem = f"waiting for virt-controller's leader to sign CertificateSigningRequest {pending.name}"
            return Result(self._patience(pending))
        return self._take(pending, found.status.certificate, trust)

    def _request(self) -> _Pending:
        key, request = keymaker.request(names.SA_HANDLER, names.tls_name_node(self._node, self._namespace))
        name = f"{names.SA_HANDLER}-{self._node}-{secrets.token_hex(4)}"
        spec = CertificateSigningRequestSpec(
            request=base64.b64encode(request).decode("ascii"),
            signer_name=names.SIGNER_HANDLER,
            usages=list(USAGES_SERVER_CLIENT),
        )
        self._client.create(CertificateSigningRequest(metadata=ObjectMeta(name=name), spec=spec))
        log.info("certificate requested", request=name)
        return _Pending(name, key, self._clock.now())

    def _patience(self, pending: _Pending) -> float:
        """A leader that is there answers at once; one that is still to come is not asked all the time."""
        age = (self._clock.now() - pending.since).total_seconds()
        return min(max(age / 5, 0.1), 5.0)

    def _give_up(self, pending: _Pending, why: str) -> Result:
        self._pending = None
        self._problem = f"CertificateSigningRequest {pending.name} was refused: {why}"
        log.error(self._problem)
        self._refused(self._problem)
        return Result(_AFTER_REFUSAL_S)

    def _take(self, pending: _Pending, text: str, trust: _Trust) -> Result:
        self._pending = None
        try:
            certificate = base64.b64decode(text, validate=True)
            check_pair(certificate, pending.key)
        except (binascii.Error, BadPair) as error:
            return self._give_up(pending, f"what came is not the certificate of our key ({error})")
        files = {names.TLS_CERT_FILE: certificate, names.TLS_KEY_FILE: pending.key, names.TLS_CA_FILE: trust.bundle}
        self._write(files)
        self._there.set()
        return Result(_LOOK_S)

    def _write(self, files: dict[str, bytes]) -> None:
        if write_files(self._directory, files):
            log.info("certificate written", node=self._node)
            self._on_change()

    def _trust(self) -> _Trust | None:
        found = self._informer.get(f"{self._namespace}/{names.CERTS_BUNDLE}")
        if found is None:
            return None
        bundle = found.data.get(names.TLS_CA_FILE, "").encode()
        try:
            check_bundle(bundle)
            return _Trust(bundle, read_facts(found.data.get(names.TLS_SIGNER_FILE, "").encode()))
        except BadPair as error:
            self._problem = f"ConfigMap {self._namespace}/{names.CERTS_BUNDLE} cannot be used: {error}"
            log.error(self._problem)
            return None

    def _shown(self) -> dict[str, bytes] | None:
        """The pair in the files, if there is a whole one."""
        try:
            pair = {name: (self._directory / name).read_bytes() for name in (names.TLS_CERT_FILE, names.TLS_KEY_FILE)}
            check_pair(*pair.values())
        except (OSError, BadPair):
            return None
        return pair
