"""The launcher from start to end, in order: libvirt, command server, readiness, the machine's life, its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from virt_core.runtime.logs import get_logger
from virt_core.runtime.supervisor import Supervisor
from virt_launcher.errors import LauncherError, StartUpError
from virt_launcher.hypervisor.daemon import Daemon
from virt_launcher.process.children import Children
from virt_launcher.process.lighten import settled
from virt_launcher.settings import Settings

if TYPE_CHECKING:
    from virt_launcher.process.assembly import Assembly

log = get_logger(__name__)

_CONNECT_DEADLINE_S = 15.0
_FINAL_NOTICE_S = 15.0


class App:
    def __init__(self, settings: Settings, supervisor: Supervisor, children: Children) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._children = children

    def run(self, stop: threading.Event) -> None:
        """The body of the main thread of the launcher; its end is the end of the process."""
        del stop
        try:
            failure = self._live()
        except LauncherError as error:
            failure = str(error)
        if failure:
            from virt_launcher.process.termination import leave_message

            leave_message(self._settings.paths.termination_log, failure)
            log.error(failure)
        self._supervisor.request_stop(1 if failure else 0)

    def _live(self) -> str:
        """Returns what went wrong; empty when the machine had a good end or none was asked for."""
        self._make_directories()
        if self._settings.fail_fast:
            return "the launcher was told to fail at once (--fail-fast)"
        daemon = Daemon(self._settings.paths, self._children)
        self._supervisor.on_stop(daemon.stop)
        daemon.start()
        # Everything below is imported while the daemon comes up; it is the larger part of the start.
        from virt_launcher.process.assembly import Assembly

        parts = Assembly(self._settings, self._children, daemon)
        self._children.on_signal(parts.monitor.stop_requested)
        self._connect(daemon, parts.door.connect)
        parts.start_threads(self._supervisor)
        parts.open_for_commands()
        settled()
        log.info("ready", libvirt=parts.door.version(), socket=str(self._settings.paths.command_socket))
        return self._accompany(parts)

    def _accompany(self, parts: Assembly) -> str:
        from virt_launcher.process.termination import shut_down

        monitor = parts.monitor
        # A move takes as long as it takes; whoever began it also ends it.
        seconds = None if self._settings.receives else self._settings.qemu_timeout_s
        if not monitor.wait(lambda: monitor.started or monitor.stopping, seconds):
            raise StartUpError(
                f"no machine was started within {seconds:.0f} s: virt-handler asked for none, or none could start"
            )
        if monitor.started:
            monitor.wait(lambda: monitor.ended or monitor.stopping, None)
        if monitor.started and not monitor.ended:
            parts.events.poke()
            shut_down(parts.manager, monitor, self._settings.grace_period_s)
        words = parts.last_notice(_FINAL_NOTICE_S)
        parts.dismiss_sidecars()
        return words

    def _connect(self, daemon: Daemon, connect: Callable[[float], None]) -> None:
        """In a thread of its own: libvirt's open has no deadline, and a daemon may accept nobody."""
        outcome: list[str] = []

        def attempt() -> None:
            try:
                connect(_CONNECT_DEADLINE_S)
                outcome.append("")
            except LauncherError as error:
                outcome.append(str(error))

        thread = threading.Thread(target=attempt, name="connect", daemon=True)
        thread.start()
        thread.join(_CONNECT_DEADLINE_S + 1.0)
        if not outcome or outcome[0]:
            cause = outcome[0] if outcome else "libvirt does not accept connections"
            raise StartUpError(f"{cause} ({daemon.last_words()})")

    def _make_directories(self) -> None:
        paths = self._settings.paths
        os.umask(0o007)  # The group is the Pod's; nobody else has business here.
        wanted = (paths.machine_dir(self._settings.uid), paths.disk_data, paths.cloud_init, paths.sockets)
        try:
            for directory in wanted:
                directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StartUpError(f"cannot make {error.filename}: {error.strerror}") from error
