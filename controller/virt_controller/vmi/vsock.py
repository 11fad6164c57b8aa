"""Addresses of guests on the vsock: one number for each machine of the cluster, so that it stays when one moves.

The addresses in use are those in the VMIs' status, whoever wrote them; the book only remembers what it gave out until
the status shows it. So a new leader needs nothing but the list that it watches anyway.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable

from virt_core.apis.facts import is_final
from virt_core.apis.vmi import VirtualMachineInstance

#: Below are the hypervisor, the loopback and the host; the last one means any.
FIRST, LAST = 3, 0xFFFFFFFE


def wants_vsock(vmi: VirtualMachineInstance) -> bool:
    return bool(vmi.spec.domain.devices.autoattach_vsock)


class CidBook:
    """Thread safe."""

    def __init__(self, vmis: Callable[[], Iterable[VirtualMachineInstance]]) -> None:
        self._vmis = vmis
        self._lock = threading.Lock()
        self._given: dict[str, int] = {}

    def of(self, vmi: VirtualMachineInstance) -> int | None:
        """The address of a VMI that wants one: the one it has, or a free one, which is then its own."""
        if not wants_vsock(vmi):
            return None
        if vmi.status.vsock_cid:
            return vmi.status.vsock_cid
        with self._lock:
            live = [each for each in self._vmis() if not is_final(each)]
            uids = {each.metadata.uid for each in live} | {vmi.metadata.uid}
            self._given = {uid: cid for uid, cid in self._given.items() if uid in uids}
            taken = {cid for each in live if (cid := each.status.vsock_cid)} | set(self._given.values())
            return self._given.setdefault(vmi.metadata.uid, _free(taken))


def _free(taken: set[int]) -> int:
    """From a place by chance on: an address that was just given back is not at once somebody else's."""
    span = LAST - FIRST + 1
    start = secrets.randbelow(span)
    return next(cid for step in range(span) if (cid := FIRST + (start + step) % span) not in taken)
