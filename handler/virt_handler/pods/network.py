"""Wires the network of a launcher Pod while its launcher starts: asks virt-netsetup, keeps what it reports."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from virt_core.apis.bindingplugins import NO_PLUGINS, Configured
from virt_core.apis.devices import Interface
from virt_core.apis.netplan import NetReport
from virt_core.apis.podroles import Role
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.times import parse_rfc3339, rfc3339_micro
from virt_handler.decisions import nics
from virt_handler.decisions.netplans import NetworkError, plan, wanted_interfaces
from virt_handler.loop.records import GhostRecord, NetworkRecord, RecordStore
from virt_handler.loop.sessions import Session
from virt_handler.pods import isolation
from virt_handler.pods import resolver as resolvers
from virt_handler.pods.files import checked_name
from virt_handler.pods.netsetup import Netsetup

log = get_logger(__name__)

_MAX_PARALLEL = 8

Done = Callable[[Session], object]


class NetworkWiring:
    """Asks virt-netsetup beside the loop, for a few Pods at a time. `run` is the thread that keeps it alive."""

    def __init__(
        self,
        command: Sequence[str],
        state_dir: str,
        records: RecordStore[NetworkRecord],
        clock: Clock,
        done: Done,
        *,
        plugins: Callable[[], Configured] = lambda: NO_PLUGINS,
    ) -> None:
        """`plugins` are the bindings that the cluster's configuration names."""
        self.netsetup = Netsetup(command)
        self._state_dir = state_dir
        self._records, self._clock, self._done = records, clock, done
        self._plugins = plugins
        self._pool = ThreadPoolExecutor(_MAX_PARALLEL, thread_name_prefix="netsetup")

    def run(self, stop: threading.Event) -> None:
        self.netsetup.run(stop)

    def recall(self, session: Session) -> bool:
        """Takes what a former process of ours had found out. False: nothing."""
        record = self._records.get(session.pod_uid)
        if record is None:
            return False
        session.network_done(record.report, parse_rfc3339(record.time) if record.time else None)
        return True

    def start(self, session: Session, vmi: VirtualMachineInstance) -> None:
        known = session.view()
        if not wanted_interfaces(vmi) and not (known.report is not None and known.report.interfaces):
            session.network_done(NetReport())
            self._done(session)
            return
        session.network_started()
        moves_in = session.role is Role.TARGET
        self._pool.submit(self._work, session, vmi, nics.arriving(vmi) if moves_in else nics.due(vmi, known.domain))

    def take_over(self, ghosts: Iterable[GhostRecord]) -> None:
        """What an older virt-handler kept by the VMI's UID goes to the Pod that it had. DHCP servers do not notice."""
        self._records.take_over()
        for ghost in ghosts:
            old, new = (os.path.join(self._state_dir, checked_name(uid)) for uid in (ghost.vmi_uid, ghost.pod_uid))
            if os.path.isdir(old) and not os.path.exists(new):
                os.rename(old, new)

    def forget(self, pod_uid: str) -> None:
        """The Pod is gone, and with it its network and its DHCP server; what is left are records."""
        self._records.delete(pod_uid)
        shutil.rmtree(os.path.join(self._state_dir, checked_name(pod_uid)), ignore_errors=True)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.netsetup.close()

    def _work(self, session: Session, vmi: VirtualMachineInstance, wired: list[Interface]) -> None:
        try:
            report = self._setup(session.pod_uid, vmi, wired)
            now = self._clock.now()
            record = NetworkRecord(pod_uid=session.pod_uid, report=report, time=rfc3339_micro(now))
            self._records.put(record)
            session.network_done(report, now)
        except NetworkError as error:
            log.warning("the network could not be wired", vmi=session.key, error=str(error), fatal=error.fatal)
            session.network_failed(str(error), fatal=error.fatal)
        except Exception as error:
            log.exception("wiring the network failed", vmi=session.key)
            session.network_failed(f"{type(error).__name__}: {error}", fatal=False)
        self._done(session)

    def _setup(self, pod_uid: str, vmi: VirtualMachineInstance, wired: list[Interface]) -> NetReport:
        with ExitStack() as stack:
            try:
                netns = isolation.open_netns(pod_uid)
                stack.callback(netns.close)
                process = isolation.open_process(pod_uid, netns.pid)
                stack.callback(process.close)
            except isolation.NoNamespaceError as error:
                raise NetworkError(str(error)) from error
            wish = plan(
                vmi,
                pod_uid,
                pod_pid=netns.pid,
                state_dir=self._state_dir,
                resolver=resolvers.of_vmi(vmi, pod_uid),
                launcher_uid=netns.launcher,
                nics=wired,
                plugins=self._plugins(),
            )
            return self.netsetup.ask(wish, process, netns.fd)
