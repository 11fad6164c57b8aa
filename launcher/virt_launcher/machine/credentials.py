"""Keys and passwords for the running guest: set by its agent when it connects, and again whenever a Secret changes."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from virt_core.apis.credentials import Delivery, Way
from virt_core.runtime.inotify import Inotify
from virt_core.runtime.logs import get_logger
from virt_launcher.disks.credentials import keys_in, passwords_in
from virt_launcher.errors import LauncherError
from virt_launcher.hypervisor.ports import Hypervisor
from virt_launcher.machine.state import CredentialsView

log = get_logger(__name__)

#: Somebody in the guest may have undone it.
_AGAIN_S = 300.0
#: What failed is tried again sooner, ever more rarely.
_RETRY_S = (5.0, 15.0, 60.0)
_MAX_MESSAGE = 512


class Credentials:
    def __init__(
        self, hypervisor: Hypervisor, connected: Callable[[], bool], directory: Callable[[str], Path],
        changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self._hypervisor, self._connected = hypervisor, connected
        self._directory, self._changed = directory, changed
        self._wanted: Sequence[Delivery] = ()
        self._failures = 0
        self._wake = -1
        self.view: CredentialsView | None = None

    def begin(self, wanted: Sequence[Delivery]) -> None:
        """Once, for a machine that has such credentials."""
        if self._wake >= 0:
            return
        self._wanted, self._wake = wanted, os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        threading.Thread(target=self._run, name="credentials", daemon=True).start()

    def poke(self) -> None:
        """The agent came or went."""
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def apply(self) -> None:
        """Sets everything; what goes wrong with one does not keep the others back."""
        if not self._connected():
            self._show(None)
            return
        try:
            problems = [problem for problem in self._attempts() if problem]
        except OSError as error:  # A Secret that changes while it is read. It is read again.
            problems = [f"a Secret cannot be read: {error}"]
        self._failures = self._failures + 1 if problems else 0
        self._show(CredentialsView(not problems, "; ".join(problems)[:_MAX_MESSAGE]))

    def _attempts(self) -> Iterator[str]:
        by_user: dict[str, list[Path]] = {}
        for each in self._wanted:
            for user in each.users if each.way is Way.AGENT_KEYS else ():
                by_user.setdefault(user, []).append(self._directory(each.secret))
        for user, directories in by_user.items():
            keys = keys_in(directories)
            yield self._attempt(f"keys of {user!r}", partial(self._hypervisor.set_ssh_keys, user, keys))
        for each in self._wanted:
            found = passwords_in(self._directory(each.secret)) if each.way is Way.AGENT_PASSWORDS else {}
            for user, password in found.items():
                yield self._attempt(f"password of {user!r}", partial(self._hypervisor.set_password, user, password))

    def _attempt(self, what: str, act: Callable[[], None]) -> str:
        try:
            act()
        except (LauncherError, OSError) as error:
            log.warning("a credential could not be set in the guest", what=what, error=str(error))
            return f"{what}: {error}"
        return ""

    def _show(self, view: CredentialsView | None) -> None:
        if view != self.view:
            self.view = view
            self._changed()

    def _run(self) -> None:
        with Inotify() as inotify:
            for secret in {each.secret for each in self._wanted}:
                inotify.watch(self._directory(secret))
            while True:
                self.apply()
                inotify.wait(self._pause_s(), self._wake)
                self._calm()

    def _pause_s(self) -> float:
        return _RETRY_S[min(self._failures, len(_RETRY_S)) - 1] if self._failures else _AGAIN_S

    def _calm(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return
