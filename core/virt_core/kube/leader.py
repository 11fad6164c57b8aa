"""Leader election by a Lease: one of several copies works, the others stand by.

A Lease has run out when its holder has not renewed it for its duration *as seen by our own clock*: the times written in
it come from other machines and are never compared. A leader that cannot renew in time stops leading before anyone else
may start. On an orderly stop the Lease is given back, so that the next one starts at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from virt_core.apis.coordination import Lease, LeaseSpec
from virt_core.apis.meta import ObjectMeta
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import ApiError, NotFound
from virt_core.runtime.clock import Clock, SystemClock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.times import rfc3339_micro

log = get_logger(__name__)

#: How long the work may take to end after the lead is lost or given back.
_STOP_WORK_S = 10.0


class LeadershipLost(Exception):
    """The Lease could not be renewed in time. The process should end and stand for election anew."""


class LeaderElector:
    def __init__(  # noqa: PLR0917 - each is named at the one place that makes it
        self,
        client: KubeClient,
        lease_namespace: str,
        lease_name: str,
        identity: str,
        on_started: Callable[[threading.Event], object],
        on_stopped: Callable[[], object] | None = None,
        *,
        lease_duration_s: float = 15.0,
        renew_deadline_s: float = 10.0,
        retry_period_s: float = 2.0,
        clock: Clock | None = None,
    ) -> None:
        if not lease_duration_s > renew_deadline_s > retry_period_s > 0:
            raise ValueError("a lease needs duration > renew deadline > retry period > 0")
        self._client = client
        self._namespace, self._name, self._identity = lease_namespace, lease_name, identity
        self._on_started, self._on_stopped = on_started, on_stopped
        self._duration_s, self._renew_s, self._retry_s = lease_duration_s, renew_deadline_s, retry_period_s
        self._clock = clock or SystemClock()
        self._lease: Lease | None = None
        self._seen: LeaseSpec | None = None
        self._seen_at = 0.0
        self._seen_alive = False
        self._leading = threading.Event()
        self._work_error: BaseException | None = None

    def is_leader(self) -> bool:
        return self._leading.is_set()

    def somebody_leads(self) -> bool:
        """We, or another copy that we have seen renew: a lease that was only found may be that of a dead one."""
        lease = self._lease
        return self.is_leader() or (self._seen_alive and lease is not None and self._taken(lease))

    def run(self, stop: threading.Event) -> None:
        """Stands by, leads, and returns after the stop. Raises LeadershipLost, or what `on_started` raised."""
        if not self._acquire(stop):
            return
        log.info("leading", lease=self._name, identity=self._identity)
        work_stop = threading.Event()
        ended = threading.Event()
        worker = threading.Thread(target=self._lead, args=(work_stop, ended), name="leader", daemon=True)
        self._leading.set()
        worker.start()
        try:
            self._keep(stop, ended)
        finally:
            self._leading.clear()
            work_stop.set()
            worker.join(_STOP_WORK_S)
            # Given back only when our own work has ended: otherwise two would work at once.
            if not worker.is_alive():
                self._release()
            if self._on_stopped:
                self._on_stopped()
        if self._work_error is not None:
            raise self._work_error

    def _lead(self, work_stop: threading.Event, ended: threading.Event) -> None:
        try:
            self._on_started(work_stop)
        except BaseException as error:
            self._work_error = error
        finally:
            ended.set()

    def _acquire(self, stop: threading.Event) -> bool:
        while not stop.is_set():
            if self._try_hold():
                return True
            self._clock.wait(stop, self._retry_s)
        return False

    def _keep(self, stop: threading.Event, ended: threading.Event) -> None:
        renewed_at = self._clock.monotonic()
        while not ended.is_set():
            if self._clock.wait(stop, self._retry_s):
                return
            if self._try_hold():
                renewed_at = self._clock.monotonic()
            elif self._held_by_other() or self._clock.monotonic() - renewed_at >= self._renew_s:
                raise LeadershipLost(f"lease {self._namespace}/{self._name} could not be renewed")

    def _held_by_other(self) -> bool:
        holder = self._lease.spec.holder_identity if self._lease else None
        return bool(holder) and holder != self._identity

    def _try_hold(self) -> bool:
        """Takes or renews the Lease. False: somebody else has it, or the API did not let us."""
        try:
            lease = self._read()
            if lease is None:
                return self._write(self._new())
            if self._taken(lease):
                return False
            return self._write(self._renewed(lease))
        except ApiError as error:
            log.warning("could not hold the lease", lease=self._name, error=str(error))
            return False

    def _read(self) -> Lease | None:
        try:
            lease = self._client.get(Lease, self._name, self._namespace)
        except NotFound:
            return None
        if lease.spec != self._seen:
            self._seen_alive = self._seen is not None
            self._seen, self._seen_at = lease.spec, self._clock.monotonic()
        self._lease = lease
        return lease

    def _taken(self, lease: Lease) -> bool:
        holder = lease.spec.holder_identity
        if not holder or holder == self._identity:
            return False
        duration = float(lease.spec.lease_duration_seconds or self._duration_s)
        return self._clock.monotonic() - self._seen_at < duration

    def _new(self) -> Lease:
        now = rfc3339_micro(self._clock.now())
        return Lease(
            metadata=ObjectMeta(name=self._name, namespace=self._namespace),
            spec=LeaseSpec(
                holder_identity=self._identity,
                lease_duration_seconds=max(int(self._duration_s), 1),
                acquire_time=now,
                renew_time=now,
                lease_transitions=0,
            ),
        )

    def _renewed(self, lease: Lease) -> Lease:
        spec = self._new().spec
        spec.lease_transitions = lease.spec.lease_transitions or 0
        if lease.spec.holder_identity == self._identity:
            spec.acquire_time = lease.spec.acquire_time
        else:
            spec.lease_transitions += 1
        return Lease(metadata=lease.metadata, spec=spec)

    def _write(self, lease: Lease) -> bool:
        # The resource version goes with it, so of two that try at once one gets a conflict.
        written = self._client.replace(lease) if lease.metadata.resource_version else self._client.create(lease)
        self._lease = written
        self._seen, self._seen_at = written.spec, self._clock.monotonic()
        return True

    def _release(self) -> None:
        lease = self._lease
        if lease is None or lease.spec.holder_identity != self._identity:
            return
        now = rfc3339_micro(self._clock.now())
        spec = LeaseSpec(
            holder_identity="",
            lease_duration_seconds=1,
            acquire_time=now,
            renew_time=now,
            lease_transitions=lease.spec.lease_transitions,
        )
        try:
            self._client.replace(Lease(metadata=lease.metadata, spec=spec))
        except ApiError as error:
            log.info("could not give the lease back, it will run out", lease=self._name, error=str(error))
