"""Watches over QEMU: which process it is, how it ended, and what the launcher's main thread waits for."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable

from virt_core.runtime.logs import get_logger
from virt_launcher.hypervisor.daemon import tail
from virt_launcher.hypervisor.ports import Change
from virt_launcher.process.children import Children, Ended
from virt_launcher.settings import Settings

log = get_logger(__name__)

#: QEMU's own lines in libvirt's log of the machine, without the time stamp.
_LOG_LINE = re.compile(r"^[0-9TZ:.+-]+ (qemu-system-\S+|qemu-kvm): (.*)$")
_STATUS_WAIT_S = 1.0
PANIC_SENTENCE = "the guest's kernel panicked"
_WATCHDOG_SENTENCE = "the guest's watchdog ran out, and its action ended the machine"
_TEXT_LIMIT = 512


class Monitor:
    """Three facts and one condition: the machine was started, it has ended, the launcher was told to stop."""

    def __init__(self, settings: Settings, children: Children) -> None:
        self._settings = settings
        self._children = children
        self._changed = threading.Condition()
        self._on_end: Callable[[], None] | None = None
        self.started = False
        self.ended = False
        self.stopping = False
        self.qemu_pid: int | None = None
        self.qemu_ended: Ended | None = None
        self.panicked = False
        self.bitten = False
        children.on_orphan(self._orphan_ended)

    def on_qemu_end(self, handler: Callable[[], None]) -> None:
        self._on_end = handler

    def machine_started(self) -> None:
        self.qemu_pid = self.read_pid()
        self._mark("started")

    def machine_ended(self) -> None:
        self._mark("ended")

    def machine_changed(self, change: Change) -> None:
        """From libvirt: what QEMU's own end would not tell."""
        self.panicked = self.panicked or change is Change.PANIC
        self.bitten = self.bitten or change is Change.WATCHDOG_END

    def stop_requested(self, number: int) -> None:
        if not self.stopping:
            log.info("told to stop", signal=signal.Signals(number).name)
        self._mark("stopping")

    def no_longer_needed(self) -> None:
        """No machine has moved in, and none will."""
        log.info("told to end without a machine")
        self._mark("stopping")

    def wait(self, predicate: Callable[[], bool], timeout_s: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(predicate, timeout_s)

    def kill_qemu(self) -> None:
        """The last resort when libvirt does not answer."""
        if self.qemu_pid is not None and self.qemu_ended is None:
            try:
                os.kill(self.qemu_pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # It ended just now.

    def how_it_ended(self) -> str:
        """One true sentence about QEMU's end where that was not a normal one; empty otherwise."""
        if self.panicked:
            return PANIC_SENTENCE
        if self.qemu_pid is None:
            return ""
        ended = self.qemu_ended or self._children.status_of(self.qemu_pid, _STATUS_WAIT_S)
        if ended is None or ended.clean:
            return _WATCHDOG_SENTENCE if self.bitten else ""
        sentence = ended.describe("QEMU")
        words = "" if ended.signal_number is not None else self.last_words()
        return f"{sentence}: {words}" if words else sentence

    def last_words(self) -> str:
        """The last thing that QEMU itself wrote to its log."""
        lines = tail(self._settings.paths.qemu_log(self._settings.domain_name)).splitlines()
        found = [match.group(2) for line in lines if (match := _LOG_LINE.match(line))]
        return found[-1][:_TEXT_LIMIT] if found else ""

    def _orphan_ended(self, ended: Ended) -> None:
        if ended.pid != self.qemu_pid:
            return
        self.qemu_ended = ended
        log.info("QEMU ended", pid=ended.pid, exit_code=ended.exit_code, signal=ended.signal_number)
        if self._on_end is not None:
            self._on_end()

    def read_pid(self) -> int | None:
        """QEMU's process, as libvirt wrote it down."""
        path = self._settings.paths.qemu_pid_file(self._settings.domain_name)
        try:
            return int(path.read_text())
        except (FileNotFoundError, ValueError) as error:
            log.warning("QEMU's process is not known: how it ends will stay unknown", path=str(path), error=str(error))
            return None

    def _mark(self, fact: str) -> None:
        with self._changed:
            setattr(self, fact, True)
            self._changed.notify_all()
