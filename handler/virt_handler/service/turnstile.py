"""How many calls to launchers there may be at once for virt-api, of one machine and of one tenant.

Each of them holds a thread of the node service until the launcher answers, and a tenant's launchers need not.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from virt_core.rpc.status import RpcFailure

PER_VMI = 4
PER_NAMESPACE = 16


class Turnstile:
    """Thread safe."""

    def __init__(self, per_vmi: int = PER_VMI, per_namespace: int = PER_NAMESPACE) -> None:
        self._per_vmi, self._per_namespace = per_vmi, per_namespace
        self._lock = threading.Lock()
        self._vmis: Counter[str] = Counter()
        self._namespaces: Counter[str] = Counter()

    @contextmanager
    def through(self, namespace: str, vmi_uid: str) -> Iterator[None]:
        """Raises RpcFailure when there are too many already."""
        with self._lock:
            if self._vmis[vmi_uid] >= self._per_vmi:
                raise _exhausted(f"{self._per_vmi} calls to the launcher of VMI {vmi_uid} are under way already")
            if self._namespaces[namespace] >= self._per_namespace:
                raise _exhausted(f"{self._per_namespace} calls to launchers of {namespace} are under way already")
            self._count(namespace, vmi_uid, 1)
        try:
            yield
        finally:
            with self._lock:
                self._count(namespace, vmi_uid, -1)

    def _count(self, namespace: str, vmi_uid: str, by: int) -> None:
        for counter, key in ((self._vmis, vmi_uid), (self._namespaces, namespace)):
            counter[key] += by
            if not counter[key]:
                del counter[key]


def _exhausted(message: str) -> RpcFailure:
    return RpcFailure(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
