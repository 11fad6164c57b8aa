"""Meets launchers and keeps in touch: the socket's appearance, the process's end, the listener for its messages."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from virt_core.apis import names
from virt_core.apis.facts import is_terminating
from virt_core.apis.owncpus import is_realtime
from virt_core.apis.podroles import Role
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.workqueue import WorkQueue
from virt_core.rpc.status import RpcFailure
from virt_core.runtime.logs import get_logger
from virt_handler.decisions.domains import is_alive
from virt_handler.decisions.wanted import digest
from virt_handler.loop.errands import Errands
from virt_handler.loop.pulse import Schedule, schedule_of
from virt_handler.loop.sessions import Session
from virt_handler.loop.watcher import Watcher
from virt_handler.pods import isolation, launchers
from virt_handler.pods.files import PodFiles, UnsafeFileError
from virt_handler.pods.gate import Gate
from virt_handler.pods.launchers import SILENCE, Launcher, LauncherGoneError, WrongLauncherError
from virt_handler.pods.notify_server import NotifyListener, NotifyServicer, Tell
from virt_handler.pods.peers import PodOf
from virt_protos.launcher.v1 import launcher_pb2 as pb

log = get_logger(__name__)

#: How soon a launcher that did not answer is asked again.
_RETRY_S = 1.0


class Contacts:
    def __init__(
        self,
        files: PodFiles,
        watcher: Watcher,
        gate: Gate,
        queue: WorkQueue,
        tell: Tell,
        *,
        errands: Errands | None = None,
        pod_of: PodOf = isolation.pod_of,
    ) -> None:
        self._errands = errands or Errands()
        self._files, self._watcher, self._gate, self._queue = files, watcher, gate, queue
        self._tell, self._pod_of = tell, pod_of

    def pod_exists(self, session: Session) -> bool:
        return self._files.pod_exists(session.pod_uid)

    def observe(self, session: Session, vmi: VirtualMachineInstance | None) -> bool:
        """Brings the session up to date with the node. False: something is missing that no event will announce."""
        if session.is_gone or session.refused or session.closed:
            return True
        try:
            self._listen(session)
            launcher = session.launcher
            if launcher is None:
                self._look(session, vmi)
            elif session.stale or session.view().domain is None:
                self._errand(session, "ask", partial(self._ask, session, launcher))
        except FileNotFoundError:
            return False  # The Pod's volumes are not there, or not any more.
        except (WrongLauncherError, UnsafeFileError) as error:
            self._refuse(session, error)
        return True

    def _refuse(self, session: Session, error: Exception) -> None:
        log.error("refused what stands in the launcher's place", vmi=session.key, error=str(error))
        session.refused = str(error)

    def _errand(self, session: Session, kind: str, words: Callable[[], object]) -> bool:
        return self._errands.start(session, kind, partial(self._speak, session, words))

    def _speak(self, session: Session, words: Callable[[], object]) -> None:
        """What comes of it is the loop's, at once or after a while."""
        pause_s = 0.0
        try:
            words()
        except LauncherGoneError:
            session.launcher_gone()
        except WrongLauncherError as error:
            self._refuse(session, error)
        except RpcFailure as failure:
            log.warning("the launcher does not answer", vmi=session.key, error=str(failure))
            pause_s = _RETRY_S
        self._wake(session, pause_s)

    def _listen(self, session: Session) -> None:
        """Before the launcher can have anything to say."""
        with session.lock:
            if session.notify is None and not session.closed:
                session.notify = self._open_door(session)
        if session.socket_watch is None and session.launcher is None:
            directory = self._files.open_volume(session.pod_uid, names.VOLUME_SOCKETS)
            try:
                session.socket_watch = self._watcher.watch_file(
                    directory, names.SOCKET_LAUNCHER, lambda: self._wake(session)
                )
            finally:
                os.close(directory)

    def _open_door(self, session: Session) -> NotifyListener:
        servicer = NotifyServicer(session, self._wake, self._tell)
        try:
            return NotifyListener(self._files, session, self._gate, servicer, self._pod_of)
        except IsADirectoryError as error:
            raise WrongLauncherError(f"{names.SOCKET_NOTIFY} cannot be made: {error}") from error

    def _look(self, session: Session, vmi: VirtualMachineInstance | None) -> None:
        """Tries the socket; when it is not there yet, the watch that was set before wakes us."""
        try:
            socket_fd = launchers.open_socket(self._files, session.pod_uid)
        except FileNotFoundError:
            self._look_for_end(session, vmi)
            return
        if not self._errand(session, "meet", partial(self._meet, session, vmi, socket_fd)):
            os.close(socket_fd)

    def _meet(self, session: Session, vmi: VirtualMachineInstance | None, socket_fd: int) -> None:
        call = session.pulse.began(Schedule())
        try:
            launcher = launchers.behind(socket_fd, session.pod_uid, self._pod_of)
        except RpcFailure:
            session.pulse.missed(call, Schedule())
            raise
        call = session.pulse.began(schedule_of(launcher.pid))
        try:
            launcher.hello(session.vmi_uid)
            version = session.version()
            domain, synced = launcher.get_machine()
        except BaseException as error:
            if isinstance(error, RpcFailure) and error.code in SILENCE:
                session.pulse.missed(call, schedule_of(launcher.pid))
            launcher.close()
            raise
        if not self._attach(session, launcher):
            return
        session.domain_read(domain, version)
        if synced is None and vmi is not None and is_alive(domain):
            # Of an older release: taken to be as its VMI is now, so that an upgrade touches no guest.
            synced = pb.Synced(digest=digest(vmi, session.view().report))
        elif synced is None and not is_alive(domain):
            # Of nothing yet. A machine that moves in is synced when it is ours: what was wished meanwhile is done then.
            synced = pb.Synced()
        if synced is not None and vmi is not None and is_realtime(vmi):
            # Nobody knows whether the process before us came to schedule its vCPUs: synced again, they are.
            synced = pb.Synced(needs_restart=synced.needs_restart)
        if synced is not None:
            session.synced_read(synced)
        self._unwatch(session)
        log.info("met the launcher", vmi=session.key, pid=launcher.pid)

    def _attach(self, session: Session, launcher: Launcher) -> bool:
        """False: nobody waits for it any more. Under the lock: who closes the session finds all of it, or nothing."""
        with session.lock:
            if session.closed:
                launcher.close()
                return False
            session.attached(launcher)
            self._watcher.watch_process(launcher.pidfd, lambda: self._ended(session))
            return True

    def _look_for_end(self, session: Session, vmi: VirtualMachineInstance | None) -> None:
        """No socket where one must have been: did the launcher end while nobody watched?"""
        comes_up = session.role is Role.TARGET or (vmi is not None and vmi.status.phase == names.PHASE_SCHEDULED)
        begins = comes_up and vmi is not None and not is_terminating(vmi)
        if not begins and not isolation.pod_pids(session.pod_uid):
            session.launcher_gone()

    def _ask(self, session: Session, launcher: Launcher) -> None:
        session.stale = False
        version = session.version()
        try:
            session.domain_read(launcher.get_domain(), version)
        except RpcFailure:
            session.stale = True
            raise

    def _wake(self, session: Session, after_s: float = 0.0) -> None:
        self._queue.add_after(session.key, after_s)

    def _ended(self, session: Session) -> None:
        log.info("a launcher ended", vmi=session.key)
        session.launcher_gone()
        self._wake(session)

    def _unwatch(self, session: Session) -> None:
        with session.lock:
            watch, session.socket_watch = session.socket_watch, None
        if watch is not None:
            self._watcher.forget_file(watch)

    def close(self, session: Session) -> None:
        """Once, whoever calls: a descriptor that is closed twice is somebody else's the second time."""
        self._unwatch(session)
        with session.lock:
            session.closed = True
            notify, session.notify = session.notify, None
            launcher, session.launcher = session.launcher, None
        if notify is not None:
            notify.close()
        if launcher is not None:
            self._watcher.forget_process(launcher.pidfd)
            launcher.close()
