"""A machine leaves: begins the move, watches it, and says how it goes.

libvirt's call blocks for as long as the move takes, so it has a thread; a second one looks at the figures.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from virt_core.runtime.logs import get_logger
from virt_launcher.errors import AbortedError, LauncherError, NoMachineError, UnavailableError, WrongStateError
from virt_launcher.hypervisor.ports import Facts, Hypervisor
from virt_launcher.machine.state import MoveView
from virt_launcher.moves import watch
from virt_launcher.moves.cards import Cards
from virt_launcher.moves.fate import Fate, after_daemon, has_left, is_split
from virt_launcher.moves.plan import MovePlan
from virt_launcher.moves.wire import Wire

log = get_logger(__name__)

LOOK_EVERY_S = 0.4
#: Progress is told at most this often; its ends are told at once.
_TELL_EVERY_S = 1.0
#: libvirt's daemon is back within a second if it died; QEMU never notices.
_DAEMON_BACK_S = 60.0
#: Between two attempts to reach a side that has part of the guest's memory: first, and at most.
_AGAIN_S, _AGAIN_MAX_S = 0.5, 10.0

ABORTING, ABORTED, NOT_ABORTED = "Aborting", "Succeeded", "Failed"


@dataclass(frozen=True, slots=True)
class Order:
    uid: str
    plan: MovePlan
    limits: watch.Limits
    max_downtime_ms: int = 0


class Departure:
    """One move, once."""

    def __init__(
        self, order: Order, hypervisor: Hypervisor, wire: Wire, kill: Callable[[], None], on_news: Callable[[], None]
    ) -> None:
        self._order, self._hypervisor, self._wire, self._kill = order, hypervisor, wire, kill
        self._on_news = on_news
        self._cards = Cards(hypervisor)
        #: libvirt has begun, so it is libvirt that gives up.
        self._begun = False
        self._done = threading.Event()
        #: The machine stands still since libvirt's daemon died, until somebody says what became of it.
        self._open = False
        self._settled = threading.Event()
        self._lock = threading.Lock()
        self._told_at = 0.0
        self._allowed_ms = 0
        self._asked_to_abort = False
        self._why = ""
        self._view = MoveView(uid=order.uid, mode=watch.MODE_PRE_COPY, started_us=_now_us())

    @property
    def view(self) -> MoveView:
        return replace(self._view, held=self._wire.held or self._open)

    @property
    def over(self) -> bool:
        return self._done.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Until it is over, and its figures are known."""
        return self._done.wait(timeout_s)

    def begin(self) -> None:
        self._wire.open()
        threading.Thread(target=self._go, name="move", daemon=True).start()
        threading.Thread(target=self._watch, name="move-watch", daemon=True).start()

    def cancel(self, why: str = "it was asked to be given up") -> None:
        """The answer of libvirt says whether it was in time."""
        if self.over:
            raise WrongStateError("the move is over")
        if self._view.mode == watch.MODE_POST_COPY:
            raise WrongStateError("the guest runs on the other side already: the move can only go on")
        self._asked_to_abort, self._why = True, self._why or why
        self._set(abort=ABORTING)
        if not self._begun:
            return
        try:
            self._hypervisor.abort_job()
        except LauncherError as error:
            log.warning("the move could not be given up", error=str(error))
            if not self.over:
                self._set(abort=NOT_ABORTED)
            raise

    def settle(self, *, gone: bool) -> None:
        """The fate of a held machine is known. Gone: it runs on the other side, so nothing of it may run here again."""
        if not self.view.held:
            raise WrongStateError("the machine is not held")
        log.info("the fate of the held machine is known", gone=gone)
        if gone:
            self._kill()
        elif self._open:
            self._hypervisor.resume()
        self._settled.set()
        self._wire.settle()

    # -- the move itself -------------------------------------------------------------------------------------------

    def _go(self) -> None:
        try:
            self._cards.pull(lambda: self._asked_to_abort)
            self._begun = True
            if self._asked_to_abort:
                raise AbortedError("the move was given up before it began")
            self._allow_pause(passes=0)
            self._hypervisor.migrate(self._order.plan)
        except AbortedError:
            self._end(failed=True, reason=f"the move was given up: {self._why or 'libvirt ended it'}", abort=ABORTED)
        except UnavailableError as error:
            self._after_daemon(error)
        except LauncherError as error:
            self._after_failure(error)
        except Exception as error:
            log.exception("the move failed by a mistake of ours")
            self._end(failed=True, reason=f"the move failed: {error}")
        else:
            self._end(failed=False)

    def _after_daemon(self, error: LauncherError) -> None:
        """libvirt's daemon has died. Its successor ends or undoes the move by itself, and we look what came of it;
        where nobody can say, the machine is held."""
        end, fate = time.monotonic() + _DAEMON_BACK_S, self._fate()
        while fate in (None, Fate.OPEN):
            if not self._open and (fate is Fate.OPEN or time.monotonic() > end):
                log.warning("libvirt's daemon ended while the guest stood still: it stays so until its fate is known")
                self._open = True
                self._on_news()
            if self._settled.wait(LOOK_EVERY_S):
                break
            fate = self._fate()
        self._open = False
        if fate is Fate.SPLIT:
            self._rejoin(error)
        elif fate is Fate.LEFT:
            self._end(failed=False)
        else:
            self._end(failed=True, reason=f"the move failed: libvirt's daemon ended in the middle of it ({error})")

    def _after_failure(self, error: LauncherError) -> None:
        facts = self._facts()
        if is_split(facts):
            self._rejoin(error)
        elif has_left(facts):
            self._end(failed=False)  # The last answer was lost, but not the guest.
        elif not self._why and any(words in str(error) for words in _WAY_LOST):
            self._end(failed=True, reason=f"the move failed: the way to the other node was lost ({error})")
        else:
            self._end(failed=True, reason=f"the move failed: {self._why or error}")

    def _rejoin(self, error: LauncherError) -> None:
        """The guest runs there and part of its memory is here: there is no end but that all of it is there, or that
        somebody ends the machine. Until then neither side may be ended."""
        pause_s = _AGAIN_S
        while True:
            log.warning("the way to the other side was lost in post-copy", error=str(error), again_in_s=pause_s)
            self._set(mode=watch.MODE_POST_COPY, reason=_SPLIT_WORDS.format(error))
            if self._settled.wait(pause_s):
                return
            pause_s = min(pause_s * 2, _AGAIN_MAX_S)
            try:
                self._hypervisor.finish_split(self._order.plan)
            except LauncherError as again:
                error = again
                facts = self._facts()
                if isinstance(again, UnavailableError) or is_split(facts):
                    continue
                if not has_left(facts):
                    self._end(failed=True, reason=f"the guest is lost: its machine ended in post-copy ({again})")
                    return
            self._end(failed=False)
            return

    def _facts(self) -> Facts | None:
        try:
            return self._hypervisor.facts()
        except LauncherError:
            return None

    def _fate(self) -> Fate | None:
        """None: libvirt does not answer."""
        try:
            return after_daemon(self._hypervisor.facts(), self._order.plan.paused)
        except UnavailableError:
            return None

    def _end(self, *, failed: bool, reason: str = "", abort: str = "") -> None:
        downtime = 0 if failed else self._downtime()
        if failed and (lost := self._cards.put_back()):
            reason = f"{reason}; {lost}"
        if self._asked_to_abort and not abort:
            abort = ABORTED if failed else NOT_ABORTED
        with self._lock:
            self._view = replace(
                self._view,
                failed=failed,
                reason=reason,
                abort=abort,
                ended_us=_now_us(),
                downtime_ms=downtime or self._view.downtime_ms,
                remaining_bytes=self._view.remaining_bytes if failed else 0,
            )
        self._done.set()
        self._wire.close()
        took = (self._view.ended_us - self._view.started_us) // 1000
        text = "the move is over"
        log.info(text, job=self._order.uid, failed=failed, cause=reason, downtime_ms=downtime, took_ms=took)
        self._on_news()

    def _downtime(self) -> int:
        try:
            figures = self._hypervisor.last_job()
        except LauncherError:
            return 0
        return figures.downtime_ms if figures is not None else 0

    # -- watching --------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        limits, course, began = self._order.limits, watch.begin(self._order.limits), time.monotonic()
        while not self._done.wait(LOOK_EVERY_S):
            try:
                figures = self._hypervisor.job()
            except (UnavailableError, NoMachineError):
                continue
            except LauncherError as error:
                log.debug("the figures of the move cannot be read now", error=str(error))
                continue
            if figures is None or not figures.total:
                continue
            self._allow_pause(figures.iteration)
            course = watch.follow(course, limits, time.monotonic() - began, figures.remaining)
            self._set(
                mode=course.mode,
                total_bytes=figures.total,
                processed_bytes=figures.processed,
                remaining_bytes=figures.remaining,
                bytes_per_second=figures.rate,
                dirty_bytes_per_second=figures.dirty_rate,
                iteration=figures.iteration,
            )
            self._act(course)

    def _allow_pause(self, passes: int) -> None:
        wanted = watch.allowed_pause(self._order.max_downtime_ms, passes)
        if wanted != self._allowed_ms:
            self._allowed_ms = wanted
            self._try(lambda: self._hypervisor.allow_downtime(wanted))

    def _act(self, course: watch.Course) -> None:
        if course.verdict is watch.Verdict.POST_COPY:
            self._try(self._hypervisor.start_post_copy)
        elif course.verdict is watch.Verdict.PAUSE:
            self._try(self._hypervisor.suspend)
        elif course.verdict is watch.Verdict.ABORT and not self._asked_to_abort:
            self._try(lambda: self.cancel(course.reason))

    def _try(self, action: Callable[[], None]) -> None:
        try:
            action()
        except LauncherError as error:
            log.warning("the course of the move could not be changed", error=str(error))

    def _set(self, **figures: object) -> None:
        with self._lock:
            if self.over:
                return
            before = self._view
            self._view = replace(self._view, **figures)  # type: ignore[arg-type]
            now = time.monotonic()
            telling = any(getattr(before, each) != getattr(self._view, each) for each in ("mode", "abort", "reason"))
            if not telling and now - self._told_at < _TELL_EVERY_S:
                return
            self._told_at = now
        self._on_news()


#: How libvirt says that its connection to the other side is gone.
_WAY_LOST = ("client socket is closed", "End of file while reading", "keepalive", "hangup", "reset by peer")
_SPLIT_WORDS = (
    "the way between the nodes was lost in post-copy: the guest waits for memory that is still at its former node, and "
    "goes on when the way is back ({})"
)


def declined(uid: str) -> MoveView:
    """A move that was given up before it began."""
    now = _now_us()
    return MoveView(
        uid=uid,
        started_us=now,
        ended_us=now,
        failed=True,
        reason="the move was given up before it began",
        abort=ABORTED,
    )


def _now_us() -> int:
    return time.time_ns() // 1000
