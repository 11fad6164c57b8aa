"""Keeps the CA, the certificates and the bundles as the plan wants them. One key: all of it hangs together.

What is watched only says when to look; the decision is made on what the API server has at that moment. An idle system
writes nothing, and is looked at when the next certificate is due.
"""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

from virt_controller.certificates.model import AUTHORITY_STEPS, Plan, Policy
from virt_controller.certificates.plan import plan
from virt_controller.certificates.roles import roles
from virt_controller.certificates.snapshot import Snapshot, take
from virt_controller.certificates.targets import TARGETS
from virt_controller.certificates.writes import Writer
from virt_core.apis.config import ConfigMap, Secret
from virt_core.apis.names import CERTS_BUNDLE, CERTS_CA
from virt_core.kube.client import KubeClient
from virt_core.kube.controller import Controller, Result
from virt_core.kube.errors import ApiError
from virt_core.kube.informer import Informer
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import Clock
from virt_core.runtime.keypair import EXPIRY
from virt_core.runtime.logs import get_logger

log = get_logger(__name__)

KEY = "certificates"
#: A fresh system is through after four: CA, certificates with bundles, nothing left.
_ROUNDS = 8
_AGAIN_S = 0.5
_MAX_DELAY_S = 5.0


class CertificateController:
    """`threads` are bodies for the leader's supervisor."""

    def __init__(
        self, client: KubeClient, namespace: str, policy: Policy, clock: Clock, *, serving: bool = True
    ) -> None:
        """Without `serving`, somebody else makes what virt-api shows to the API server, and tells it whom to trust."""
        self._client, self._namespace, self._policy, self._clock = client, namespace, policy, clock
        self._roles, self._targets = roles(namespace, serving=serving), TARGETS if serving else ()
        self._writer = Writer(client, namespace, self._roles, policy)
        self._stop = threading.Event()
        self._settled = False
        # Certificates of seconds (tests) leave no time for long delays between attempts.
        self.queue = WorkQueue(clock, KEY, max_delay_s=_MAX_DELAY_S)
        self.informers: list[Informer[Any]] = [
            *(self._watch(Secret, name, namespace) for name in (CERTS_CA, *self._roles)),
            self._watch(ConfigMap, CERTS_BUNDLE, namespace),
            *(self._watch(target.cls, target.name) for target in self._targets),
        ]

    def run(self, stop: threading.Event) -> None:
        """Blocks until the stop. Whoever has lost the lead makes no further write."""
        self._stop = stop
        self.queue.add(KEY)
        Controller(KEY, self.queue, self.reconcile, 1, self.informers).run(stop)

    def ready(self) -> str | None:
        """None once everybody has a certificate and the bundle to check the others by; later ones overlap."""
        return None if self._settled else "certificates and CA bundles are not in place yet"

    def reconcile(self, _key: str) -> Result | None:
        for _ in range(_ROUNDS):
            now = self._clock.now()
            seen = take(self._client, self._namespace, self._roles, now, self._targets)
            _show(seen)
            wanted = plan(seen.state, self._policy, now)
            if not wanted.steps:
                self._settled = True
                return Result((wanted.wake - now).total_seconds())
            if not self._carry_out(wanted, seen, now):
                return None
        return Result(_AGAIN_S)

    def _carry_out(self, wanted: Plan, seen: Snapshot, now: datetime) -> bool:
        """False: we were stopped in between. Raises the first ApiError, after everything else has been tried."""
        if any(isinstance(step, AUTHORITY_STEPS) for step in wanted.steps):
            if not self._stop.is_set():
                self._writer.authorities(seen, wanted, now)
            return not self._stop.is_set()
        failures: list[ApiError] = []
        for step in wanted.steps:
            if self._stop.is_set():
                return False
            try:
                self._writer.carry_out(step, seen, now)
            except ApiError as error:
                # An API service that we may not write to must not keep the certificates from those who can use them.
                failures.append(error)
        if failures:
            raise failures[0]
        return True

    def _watch(self, cls: type[Any], name: str, namespace: str = "") -> Informer[Any]:
        informer: Informer[Any] = Informer(self._client, cls, namespace, field_selector=f"metadata.name={name}")

        def changed(_obj: object) -> None:
            self.queue.add(KEY)

        informer.add_handler(changed, lambda _old, new: changed(new), changed)
        return informer


def _show(seen: Snapshot) -> None:
    """When everything ends, for whoever watches over us."""
    state = seen.state
    if state.active is not None:
        EXPIRY.set(state.active.ends.timestamp(), CERTS_CA)
    for name, leaf in state.leaves.items():
        if leaf is not None:
            EXPIRY.set(leaf.ends.timestamp(), name)
