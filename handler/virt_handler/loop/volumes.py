"""Volumes that come and go, beside the loop: a file system that hangs must hold up nobody else's machine."""

from __future__ import annotations

import dataclasses
from functools import partial

from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.rpc.status import RpcFailure
from virt_core.runtime.logs import get_logger
from virt_handler.decisions import backups, hotplug, memorydumps
from virt_handler.decisions.domains import is_alive
from virt_handler.decisions.hotplug import Mounts, Work
from virt_handler.loop.errands import Errands
from virt_handler.loop.sessions import Session
from virt_handler.pods.launchers import Launcher
from virt_handler.pods.plugging import NotThereError, Plugging
from virt_protos.launcher.v1 import launcher_pb2 as pb

log = get_logger(__name__)

_RETRY_S = 1.0
#: An attachment Pod that says it runs may have a moment to go until its process is seen.
_SOON_S = 0.1


class Volumes:
    def __init__(self, plugging: Plugging, errands: Errands, queue: WorkQueue, recorder: EventRecorder) -> None:
        self._plugging, self._errands, self._queue, self._recorder = plugging, errands, queue, recorder

    def follow(self, session: Session, vmi: VirtualMachineInstance) -> None:
        """Brings what is there, takes out what is no longer wanted. What comes of it wakes the loop."""
        launcher = session.launcher
        plugged = any(status.hotplug_volume is not None for status in vmi.status.volume_status)
        if launcher is None or session.is_gone or not (plugged or session.mounts):
            return
        if session.mounts is None:
            self._errands.start(session, "volumes", partial(self._look, session, launcher))
            return
        view = session.view()
        synced = view.synced.digest if view.synced is not None and is_alive(view.domain) else None
        work = hotplug.work(vmi, session.mounts, view.domain, synced, view.report)
        if (work.mount or work.unmount) and session.may_mount():
            self._errands.start(session, "volumes", partial(self._do, session, vmi, launcher, work))

    def dump(self, session: Session, vmi: VirtualMachineInstance) -> None:
        """Lets the launcher begin the memory dumps that the VMI's status has promised."""
        launcher, domain = session.launcher, session.view().domain
        if launcher is None or session.is_gone or domain is None:
            return
        for volume, file, kind in memorydumps.due(vmi, domain, session.dumps_refused):
            begin = partial(self._begin_dump, session, launcher, (volume, file, kind))
            self._errands.start(session, "memory-dump", begin)
        if memorydumps.is_releasable(vmi, domain):
            self._errands.start(session, "release-state", partial(self._release, session, launcher))

    def _release(self, session: Session, launcher: Launcher) -> None:
        try:
            launcher.release_state()
        except RpcFailure as failure:
            log.warning("the guest could not be let go on", vmi=session.key, error=str(failure))
            self._queue.add_after(session.key, _RETRY_S)

    def _begin_dump(self, session: Session, launcher: Launcher, dump: tuple[str, str, str]) -> None:
        volume, file, kind = dump
        try:
            launcher.dump_memory(volume, file, kind)
        except RpcFailure as failure:
            if failure.transient:
                self._queue.add_after(session.key, _RETRY_S)
                return
            session.dump_refused(file, failure.message or str(failure))
        self._queue.add(session.key)

    def back_up(self, session: Session, vmi: VirtualMachineInstance) -> None:
        """Lets the launcher begin the backup that is asked for, or give it up."""
        launcher, domain = session.launcher, session.view().domain
        if launcher is None or session.is_gone or domain is None or not is_alive(domain):
            return
        if (request := backups.due(vmi, domain, session.backups_refused)) is not None:
            self._errands.start(session, "backup", partial(self._begin_backup, session, launcher, request))
        elif name := backups.to_abort(vmi, domain):
            self._errands.start(session, "backup", partial(self._abort_backup, session, launcher, name))

    def _begin_backup(self, session: Session, launcher: Launcher, request: pb.BeginBackupRequest) -> None:
        try:
            launcher.begin_backup(request)
        except RpcFailure as failure:
            if failure.transient:
                self._queue.add_after(session.key, _RETRY_S)
                return
            session.backup_refused(backups.key(request.name, request.started), failure.message or str(failure))
        self._queue.add(session.key)

    def _abort_backup(self, session: Session, launcher: Launcher, name: str) -> None:
        try:
            launcher.abort_backup(name)
        except RpcFailure as failure:
            log.warning("a backup could not be given up", vmi=session.key, backup=name, error=str(failure))
        self._queue.add_after(session.key, _RETRY_S)

    def _look(self, session: Session, launcher: Launcher) -> None:
        try:
            session.mounts = Mounts(self._plugging.mounted(session.pod_uid, launcher))
        except OSError as error:
            log.warning("the volumes of a launcher cannot be seen", vmi=session.key, error=str(error))
            self._queue.add_after(session.key, _RETRY_S)
            return
        self._queue.add(session.key)

    def _do(self, session: Session, vmi: VirtualMachineInstance, launcher: Launcher, work: Work) -> None:
        mounts = session.mounts or Mounts()
        there, failures, pause_s = set(mounts.there), {}, 0.0
        for name in work.unmount:
            try:
                self._plugging.unmount(session.pod_uid, launcher, name)
                there.discard(name)
            except OSError as error:
                failures[name], pause_s = f"it could not be taken out of the Pod: {error}", _RETRY_S
        for volume in work.mount:
            try:
                self._plugging.mount(session.pod_uid, launcher, volume)
                there.add(volume.name)
            except NotThereError:
                pause_s = max(pause_s, _SOON_S)
            except OSError as error:
                failures[volume.name], pause_s = f"it could not be brought into the Pod: {error}", _RETRY_S
        for name, why in failures.items():
            if mounts.failures.get(name) != why:
                text = f'volume "{name}": {why}'
                log.warning("a volume could not be mounted or unmounted", vmi=session.key, error=text)
                self._recorder.event(vmi, names.EVENT_WARNING, names.EVENT_HOTPLUG_FAILED, text)
        session.mounted(dataclasses.replace(mounts, there=frozenset(there), failures=failures), pause_s)
        self._queue.add_after(session.key, pause_s)
