"""Signs what nodes ask for: approves, signs, or denies with a reason that the node shows to people.

A request that somebody else has approved is judged like any other: an approval alone makes no certificate.
"""

from __future__ import annotations

import threading
from typing import Any

from virt_controller.certificates.authorities import read_authorities
from virt_controller.certificates.bundles import encoded
from virt_controller.certificates.model import Policy
from virt_controller.certificates.requests import Granted, Refused, judge
from virt_controller.certificates.roles import node_role
from virt_controller.certificates.writes import ISSUED
from virt_core.apis.certificates import APPROVED, DENIED, FAILED, CertificateSigningRequest
from virt_core.apis.config import Secret
from virt_core.apis.names import CERTS_CA, CERTS_HANDLER, SIGNER_HANDLER, TRUE
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Controller, Result
from virt_core.kube.errors import NotFound
from virt_core.kube.informer import Informer
from virt_core.kube.patch import MergePatch
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.x509 import Pair, pem, sign_leaf

log = get_logger(__name__)

NAME = "node-certificates"
#: The CA comes a moment after the first leader.
_WAIT_FOR_CA_S = 0.5
_MAX_DELAY_S = 5.0


class NodeSigner:
    """`run` and the informer's `run` are bodies for the leader's supervisor."""

    def __init__(self, client: KubeClient, namespace: str, policy: Policy, clock: Clock) -> None:
        self._client, self._namespace, self._policy, self._clock = client, namespace, policy, clock
        self.queue = WorkQueue(clock, NAME, max_delay_s=_MAX_DELAY_S)
        self.informer = Informer(client, CertificateSigningRequest, field_selector=f"spec.signerName={SIGNER_HANDLER}")
        self.informer.add_handler(self._changed, lambda _old, new: self._changed(new), lambda _gone: None)

    def run(self, stop: threading.Event) -> None:
        Controller(NAME, self.queue, self.reconcile, 1, [self.informer]).run(stop)

    def _changed(self, request: CertificateSigningRequest) -> None:
        if is_open(request):
            self.queue.add(request.metadata.name)

    def reconcile(self, key: str) -> Result | None:
        """Raises ApiError."""
        request = self.informer.get(key)
        if request is None or not is_open(request):
            return None
        try:
            granted = judge(request.spec, self._namespace)
        except Refused as refusal:
            self._refuse(request, str(refusal))
            return None
        authority = self._authority()
        if authority is None:
            return Result(_WAIT_FOR_CA_S)
        self._sign(self._approved(request, granted), granted, authority)
        return None

    def _authority(self) -> Pair | None:
        """Straight from the API server, like every other signature: an old copy could be of a CA that is gone."""
        try:
            found = read_authorities(self._client.get(Secret, CERTS_CA, self._namespace)).alive(self._clock.now())
        except NotFound:
            return None
        return found.signs()

    def _approved(self, request: CertificateSigningRequest, granted: Granted) -> CertificateSigningRequest:
        if request.condition(APPROVED) is not None:
            return request
        message = f"the token of the requester names node {granted.node}"
        return self._write(request, "approval", {"conditions": _added(request, APPROVED, "NodeMatches", message)})

    def _sign(self, request: CertificateSigningRequest, granted: Granted, authority: Pair) -> None:
        role = node_role(granted.node, self._namespace)
        certificate = sign_leaf(authority, role, granted.key, self._clock.now(), self._policy.leaf_life)
        self._write(request, "status", {"certificate": encoded(pem(certificate))})
        ISSUED.inc(CERTS_HANDLER)
        log.info("certificate issued", node=granted.node, ends=certificate.not_valid_after_utc.isoformat())

    def _refuse(self, request: CertificateSigningRequest, why: str) -> None:
        """What is approved already cannot be denied any more, only failed."""
        log.warning("a request for a node's certificate is refused", request=request.metadata.name, reason=why)
        if request.condition(APPROVED) is None:
            self._write(request, "approval", {"conditions": _added(request, DENIED, "NotItsNode", why)})
        else:
            self._write(request, "status", {"conditions": _added(request, FAILED, "NotItsNode", why)})

    def _write(
        self, request: CertificateSigningRequest, subresource: str, status: dict[str, Any]
    ) -> CertificateSigningRequest:
        """Only on the version that was judged."""
        meta = request.metadata
        patch = MergePatch({"metadata": {"resourceVersion": meta.resource_version}, "status": status})
        return self._client.patch(CertificateSigningRequest, meta.name, "", patch, subresource=subresource)


def is_open(request: CertificateSigningRequest) -> bool:
    """For us, and neither answered nor refused. The selector of a watch is no proof."""
    answered = bool(request.status.certificate) or any(request.condition(each) for each in (DENIED, FAILED))
    return request.spec.signer_name == SIGNER_HANDLER and not answered


def _added(request: CertificateSigningRequest, type: str, reason: str, message: str) -> list[Any]:
    new = {"type": type, "status": TRUE, "reason": reason, "message": message}
    return [*request.status.conditions, new]
