"""Wires the network of a launcher Pod while its launcher starts: runs virt-netsetup, keeps what it reports.

It is a program of its own, so that the code that works inside a Pod's namespaces stays small and single-threaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from virt_core.apis import handoffs
from virt_core.apis.base import decode, encode
from virt_core.apis.netplan import NetPlan, NetReport
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.clock import Clock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.times import parse_rfc3339, rfc3339_micro
from virt_handler.decisions.netplans import NetworkError, plan, wanted_interfaces
from virt_handler.loop.records import GhostRecord, NetworkRecord, RecordStore
from virt_handler.loop.sessions import Session
from virt_handler.pods import isolation
from virt_handler.pods import resolver as resolvers
from virt_handler.pods.files import checked_name

log = get_logger(__name__)

TIMEOUT_S = handoffs.NETWORK_READY.deadline_s
_MAX_REPORT = 1 << 20
_MAX_PARALLEL = 8

Done = Callable[[Session], object]


class NetworkWiring:
    """Runs virt-netsetup beside the loop, a few at a time."""

    def __init__(
        self, command: Sequence[str], state_dir: str, records: RecordStore[NetworkRecord], clock: Clock, done: Done
    ) -> None:
        self._command = list(command)
        self._state_dir = state_dir
        self._records, self._clock, self._done = records, clock, done
        self._pool = ThreadPoolExecutor(_MAX_PARALLEL, thread_name_prefix="netsetup")

    def recall(self, session: Session) -> bool:
        """Takes what a former process of ours had found out. False: nothing."""
        record = self._records.get(session.pod_uid)
        if record is None:
            return False
        session.network_done(record.report, parse_rfc3339(record.time) if record.time else None)
        return True

    def start(self, session: Session, vmi: VirtualMachineInstance) -> None:
        if not wanted_interfaces(vmi):
            session.network_done(NetReport())
            self._done(session)
            return
        session.network_started()
        self._pool.submit(self._work, session, vmi)

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

    def _work(self, session: Session, vmi: VirtualMachineInstance) -> None:
        try:
            report = self._setup(session.pod_uid, vmi)
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

    def _setup(self, pod_uid: str, vmi: VirtualMachineInstance) -> NetReport:
        try:
            netns = isolation.open_netns(pod_uid)
        except isolation.NoNamespaceError as error:
            raise NetworkError(str(error)) from error
        try:
            wish = plan(
                vmi,
                pod_uid,
                pod_pid=netns.pid,
                netns_path=f"/proc/self/fd/{netns.fd}",
                state_dir=self._state_dir,
                resolver=resolvers.of_vmi(vmi, pod_uid),
                launcher_uid=netns.launcher,
            )
            return run(self._command, wish, netns.fd)
        finally:
            netns.close()


def run(command: Sequence[str], wish: NetPlan, *pass_fds: int) -> NetReport:
    """One run of virt-netsetup. Raises NetworkError."""
    try:
        done = subprocess.run(
            list(command),
            input=encode(wish),
            capture_output=True,
            timeout=TIMEOUT_S,
            pass_fds=pass_fds,
            # Ours is for the sockets that we make in Pods; nobody else needs that.
            umask=0o077,
            check=False,
        )
    except FileNotFoundError as error:
        raise NetworkError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise NetworkError(f"virt-netsetup did not end within {TIMEOUT_S:.0f} s") from error
    report = _read(done)
    if report.error is not None:
        raise NetworkError(f"{report.error.step}: {report.error.message}", fatal=report.error.critical)
    if done.returncode != 0:
        raise NetworkError(_last_words(done))
    return report


def _read(done: subprocess.CompletedProcess[bytes]) -> NetReport:
    try:
        return decode(done.stdout[:_MAX_REPORT], NetReport)
    except msgspec.MsgspecError as error:
        raise NetworkError(_last_words(done)) from error


def _last_words(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return f"virt-netsetup ended with code {done.returncode}: {lines[-1][:500] if lines else 'it printed nothing'}"
