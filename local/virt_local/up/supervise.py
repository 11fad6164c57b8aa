"""`virt-local up`: one supervisor for an instance. It starts everything, keeps it running, and stops it when told to.

Pods are not its business: they run on, whatever happens to it or to the components.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from virt_core.kube.errors import ApiError
from virt_core.runtime.logs import get_logger
from virt_core.runtime.supervisor import Supervisor
from virt_local.up import components, network, preflight, probe
from virt_local.up.errors import NetworkError, UpError
from virt_local.up.instance import DEFAULT_NAME, Instance
from virt_local.up.preflight import PreflightError
from virt_local.up.processes import ProcessTable, stop_processes
from virt_local.up.progress import Progress
from virt_local.up.readiness import NotReady
from virt_local.up.startup import Startup
from virt_local.up.state import AlreadyRunning, Lock, ProcessBook

log = get_logger("virt-local.up")

#: Every component may be killed at any moment, so an orphan with an open stream does not hold us up.
_TAKE_OVER_S = 2.0


class Up:
    """One run of the supervisor."""

    def __init__(
        self,
        instance: Instance,
        progress: Progress,
        *,
        product: bool,
        host_users: bool = False,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        self._instance = instance
        self._progress = progress
        self._product = product
        self._host_users = host_users
        self._on_ready = on_ready
        self._lock = Lock(instance)
        self._book = ProcessBook(instance.run_dir / "pids")
        self._failure: UpError | None = None

    def run(self) -> None:
        """Blocks until a signal. Raises UpError when the start fails."""
        self._prepare()
        self._lock.claim()
        try:
            self._supervise()
        finally:
            self._lock.release()
        if self._failure is not None:
            raise self._failure

    def _prepare(self) -> None:
        """Everything that can fail before a process starts, with one clear sentence for each failure."""
        try:
            preflight.check_root()
            preflight.check_tools(components=self._product)
            self._take_lock()
            self._take_over()
            preflight.check_network(self._instance, routes=network.routes)
            if warning := preflight.forward_warning(self._instance, network.forward_policy()):
                self._progress.line(warning)
            preflight.check_ports(self._instance, components=self._product)
        except (PreflightError, NetworkError) as err:
            self._lock.release()
            raise UpError(str(err), exit_code=2) from err

    def _take_lock(self) -> None:
        try:
            self._lock.acquire()
        except AlreadyRunning as err:
            hint = "" if self._instance.name == DEFAULT_NAME else f" --instance {self._instance.name}"
            raise UpError(
                f"virt-local is already running with its data in {self._instance.data_dir}: "
                f"see `virt-local status{hint}`, stop it with `virt-local down{hint}`.",
                exit_code=3,
            ) from err

    def _take_over(self) -> None:
        """A supervisor that was killed left its components behind: they are replaced. Their Pods are not touched."""
        orphans = self._book.living()
        if orphans:
            self._progress.step(f"taking over from a supervisor that was killed ({len(orphans)} processes)")
            stop_processes(orphans, _TAKE_OVER_S)
        probe.clear_killed(self._instance)

    def _supervise(self) -> None:
        supervisor = Supervisor("virt-local", grace_s=40.0)
        table = ProcessTable(self._book, self._instance.log_file)
        startup = Startup(
            self._instance,
            table,
            self._progress,
            supervisor.stop,
            product=self._product,
            host_users=self._host_users,
        )
        supervisor.on_stop(startup.close)
        supervisor.on_stop(lambda: table.stop_all(components.API_SERVER))
        supervisor.thread("processes", table.run)
        supervisor.thread("start", lambda stop: self._start(supervisor, startup, stop), may_end=True)
        supervisor.run()

    def _start(self, supervisor: Supervisor, startup: Startup, stop: threading.Event) -> None:
        try:
            startup.run()
        except (NotReady, UpError, ApiError, NetworkError, OSError) as err:
            if not stop.is_set():
                log.error("the start failed", error=str(err))
                self._failure = UpError(str(err), log=getattr(err, "component", "") or getattr(err, "log", ""))
            supervisor.request_stop(1)
            return
        if self._product:
            supervisor.thread("tokens", startup.accounts.renew_loop)
            self._progress.step(f"automation (gRPC) on {self._instance.automation_address}")
        self._progress.line(f"virt-local is up ({self._progress.elapsed_s:.1f} s).")
        if self._on_ready is not None:
            self._on_ready()
