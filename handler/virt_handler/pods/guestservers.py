"""Hears of the end of the processes that serve guests in their Pods: DHCP and router advertisements.

They live on when we or virt-netsetup end, so they are known by what the report says, and watched by descriptor. Whoever
ends one (the kernel for want of memory, somebody in the Pod) has it started anew by the loop, after a pause that grows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable

from virt_core.apis.netplan import NetServer
from virt_core.runtime.logs import get_logger
from virt_core.runtime.procs import ProcessGone, ProcessId
from virt_handler.loop.sessions import Session
from virt_handler.loop.watcher import Watcher

log = get_logger(__name__)

Lost = Callable[[Session], object]
_LOST = "the DHCP server of {} has ended; it is started anew"


class GuestServers:
    def __init__(self, watcher: Watcher, lost: Lost) -> None:
        self._watcher, self._lost = watcher, lost
        self._lock = threading.Lock()
        #: Descriptors by process, by Pod.
        self._known: dict[str, dict[ProcessId, int]] = {}

    def follow(self, session: Session, servers: Iterable[NetServer]) -> None:
        """These are the Pod's servers from now on."""
        wanted = {ProcessId(server.pid, server.start_time): server.name for server in servers}
        with self._lock:
            known = self._known.setdefault(session.pod_uid, {})
            for process in [each for each in known if each not in wanted]:
                self._drop(known, process)
            new = {process: name for process, name in wanted.items() if process not in known}
            gone = [name for process, name in new.items() if not self._watch(session, known, process, name)]
        for name in gone:
            self._ended(session, None, name)

    def forget(self, pod_uid: str) -> None:
        with self._lock:
            known = self._known.pop(pod_uid, {})
            for process in [*known]:
                self._drop(known, process)

    def _watch(self, session: Session, known: dict[ProcessId, int], process: ProcessId, name: str) -> bool:
        try:
            known[process] = process.open()
        except ProcessGone:
            return False
        self._watcher.watch_process(known[process], lambda: self._ended(session, process, name))
        return True

    def _ended(self, session: Session, process: ProcessId | None, name: str) -> None:
        with self._lock:
            known = self._known.get(session.pod_uid, {})
            if process is not None and process not in known:
                return  # Forgotten meanwhile: the Pod is gone, or has another server.
            if process is not None:
                self._drop(known, process)
        # Of no importance where the Pod ends; where it does not, the VMI says so.
        log.info("a guest's DHCP server has ended", vmi=session.key, pod=session.pod_uid, interface=name)
        session.network_failed(_LOST.format(name), fatal=False)
        self._lost(session)

    def _drop(self, known: dict[ProcessId, int], process: ProcessId) -> None:
        descriptor = known.pop(process)
        self._watcher.forget_process(descriptor)
        os.close(descriptor)
