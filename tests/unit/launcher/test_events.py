"""Events, guest agent and termination around the fake hypervisor."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.unit.launcher.parts import Parts, make_parts, plain_vmi
from virt_launcher.errors import AgentGivenUpError, LauncherError
from virt_launcher.hypervisor.ports import AgentInfo, AgentReport, Change, State
from virt_launcher.machine.events import EventWorker
from virt_launcher.machine.manager import SyncOptions
from virt_launcher.machine.state import MachineView
from virt_launcher.process.termination import leave_message, shut_down


class Outlet:
    def __init__(self) -> None:
        self.views: list[MachineView] = []
        self.remarks: list[tuple[str, str, str]] = []

    def publish(self, view: MachineView) -> None:
        self.views.append(view)

    def record(self, kind: str, reason: str, message: str) -> None:
        self.remarks.append((kind, reason, message))


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    return make_parts(tmp_path)


@pytest.fixture
def outlet() -> Outlet:
    return Outlet()


@pytest.fixture
def worker(parts: Parts, outlet: Outlet) -> EventWorker:
    worker = EventWorker(parts.manager.view, outlet)
    worker.on_state(lambda view: parts.monitor.machine_ended() if parts.monitor.started and not view.alive else None)
    parts.hypervisor.watch(worker.poke)
    parts.monitor.on_qemu_end(worker.poke)
    return worker


def start(parts: Parts) -> None:
    parts.manager.sync(plain_vmi(), SyncOptions())


def test_nothing_is_told_before_there_is_a_machine(worker: EventWorker, outlet: Outlet) -> None:
    worker.handle()
    assert outlet.views == []


def test_the_same_state_is_told_once(parts: Parts, worker: EventWorker, outlet: Outlet) -> None:
    start(parts)
    worker.handle()
    worker.handle()
    assert [v.state for v in outlet.views] == [State.RUNNING]


def test_disk_errors_become_remarks(parts: Parts, worker: EventWorker, outlet: Outlet) -> None:
    start(parts)
    parts.hypervisor.errors = {"vda": "no space left"}
    parts.hypervisor.becomes(State.PAUSED, "IOError")
    worker.handle()
    worker.handle()
    assert outlet.remarks == [("Warning", "IOerror", "the guest is paused: disk vda: no space left")]


def test_a_panic_becomes_a_remark(parts: Parts, worker: EventWorker, outlet: Outlet) -> None:
    start(parts)
    parts.hypervisor.watch(parts.monitor.machine_changed)
    parts.hypervisor.panics()
    worker.handle()
    assert [r[1] for r in outlet.remarks] == ["GuestPanicked"]
    last = outlet.views[-1]
    assert (last.state, last.reason, last.message) == (State.CRASHED, "Panicked", "the guest's kernel panicked")


def test_a_mistake_of_ours_does_not_end_the_thread(outlet: Outlet) -> None:
    reads: list[int] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return False

    def read() -> MachineView:
        reads.append(1)
        if len(reads) == 1:
            raise ValueError("a bug")
        stop.set()
        return MachineView(name="n", state=State.RUNNING)

    stop = Stop()
    worker = EventWorker(read, outlet)
    worker.poke()
    worker.run(stop)
    assert [v.state for v in outlet.views] == [State.RUNNING]


def test_the_thread_turns_hints_into_states_and_stops(parts: Parts, worker: EventWorker, outlet: Outlet) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    start(parts)
    parts.hypervisor.becomes(State.SHUTOFF, "Shutdown")
    assert parts.monitor.wait(lambda: parts.monitor.ended, 10)
    stop.set()
    worker.poke()
    thread.join(10)
    assert not thread.is_alive()
    assert outlet.views[-1].state is State.SHUTOFF


def test_an_unreadable_state_is_tried_again(parts: Parts, worker: EventWorker, outlet: Outlet) -> None:
    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            parts.hypervisor.broken = False  # The pause before the next try: libvirt is back.
            return False

    start(parts)
    parts.hypervisor.broken = True
    stop = Stop()
    worker.on_state(lambda _: stop.set())
    worker.on_state(lambda _: worker.poke())
    thread = threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    worker.poke()
    thread.join(10)
    assert [v.state for v in outlet.views] == [State.RUNNING]


def test_agent_news_are_passed_on_once(parts: Parts) -> None:
    news: list[str] = []
    parts.agent.on_news(lambda: news.append(parts.agent.view.report.hostname))
    parts.hypervisor.report = AgentReport(hostname="one")
    parts.agent.poll()
    assert news == []  # Not connected: whatever it says does not count.
    parts.agent.channel_is(True)
    parts.agent.poll()
    parts.agent.poll()
    parts.hypervisor.report = AgentReport(hostname="two")
    parts.agent.poll()
    assert news == ["one", "two"]


def test_a_silent_agent_still_counts_as_connected(parts: Parts) -> None:
    parts.agent.channel_is(True)
    parts.agent.poll()
    assert parts.agent.view.connected
    parts.agent.channel_is(False)
    assert not parts.agent.view.connected


def test_an_agent_to_which_libvirt_listens_no_more_counts_as_gone_and_is_told_of_once(
    parts: Parts, worker: EventWorker, outlet: Outlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its channel is open all the time. It is there again when it is heard again."""

    def deaf() -> AgentReport:
        raise AgentGivenUpError("asked no more")

    start(parts)
    parts.hypervisor.report = AgentReport(hostname="liar")
    monkeypatch.setattr(parts.agent, "channel_is", lambda _: None)
    parts.agent._connected = True
    parts.agent.poll()
    worker.handle()
    assert outlet.views[-1].agent.connected
    with monkeypatch.context() as patched:
        patched.setattr(parts.hypervisor, "agent_report", deaf)
        for _ in range(2):
            parts.agent.poll()
            worker.handle()
    assert not outlet.views[-1].agent.connected
    assert [reason for _, reason, _ in outlet.remarks] == ["GuestAgentGivenUp"]
    parts.agent.poll()
    worker.handle()
    assert outlet.views[-1].agent.connected
    assert len(outlet.remarks) == 1


def test_an_agent_that_does_not_tell_its_version_is_heard(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> AgentInfo:
        raise LauncherError("the guest agent does not know guest-info")

    monkeypatch.setattr(parts.hypervisor, "agent_info", unknown)
    parts.hypervisor.report = AgentReport(hostname="old")
    parts.agent.channel_is(True)
    parts.agent.poll()
    assert (parts.agent.view.report.hostname, parts.agent.view.about) == ("old", AgentInfo())


def test_the_agent_thread_polls_on_connect_and_stops(parts: Parts) -> None:
    told, stop = threading.Event(), threading.Event()
    parts.agent.on_news(told.set)
    parts.hypervisor.report = AgentReport(hostname="h")
    thread = threading.Thread(target=parts.agent.run, args=(stop,))
    thread.start()
    parts.agent.channel_is(True)
    assert told.wait(10)
    stop.set()
    parts.agent.wake()
    thread.join(10)
    assert not thread.is_alive()


def test_a_guest_that_listens_ends_by_itself(parts: Parts) -> None:
    start(parts)
    real = parts.hypervisor.shutdown

    def shutdown() -> None:
        real()
        parts.monitor.machine_ended()

    parts.hypervisor.shutdown = shutdown  # type: ignore[method-assign]
    shut_down(parts.manager, parts.monitor, grace_s=60)
    assert parts.hypervisor.calls.count("shutdown") == 1
    assert "destroy" not in parts.hypervisor.calls


def test_a_guest_that_does_not_listen_is_ended(parts: Parts, worker: EventWorker) -> None:
    start(parts)
    parts.hypervisor.watch(lambda _: worker.handle())
    shut_down(parts.manager, parts.monitor, grace_s=0.01)
    assert "destroy" in parts.hypervisor.calls
    assert parts.monitor.ended


def test_last_words_only_where_there_is_a_place(tmp_path: Path) -> None:
    leave_message(tmp_path / "absent", "words")
    assert not (tmp_path / "absent").exists()
    (tmp_path / "log").write_text("an older and longer message")
    leave_message(tmp_path / "log", "words")
    assert (tmp_path / "log").read_text() == "words"


def test_a_watchdog_that_ends_the_machine_is_told(parts: Parts, worker: EventWorker, outlet: Outlet) -> None:
    """QEMU ends well then, and libvirt only says that it crashed."""
    start(parts)
    parts.hypervisor.watch(parts.monitor.machine_changed)
    parts.hypervisor._tell(Change.WATCHDOG_END)
    parts.qemu_ends(exit_code=0)
    parts.hypervisor.becomes(State.SHUTOFF, "Crashed")
    worker.handle()
    assert [r[1] for r in outlet.remarks] == ["WatchdogFired"]
    assert outlet.views[-1].message == "the guest's watchdog ran out, and its action ended the machine"


def test_an_agent_that_is_back_at_once_is_asked_at_once(parts: Parts) -> None:
    """Before anybody saw that it was away: it may be another one, and its guest another system."""
    start(parts)
    parts.hypervisor.watch(parts.agent.machine_changed)
    parts.hypervisor.report = AgentReport(hostname="first")
    heard = threading.Semaphore(0)
    parts.agent.on_news(heard.release)
    stop = threading.Event()
    thread = threading.Thread(target=parts.agent.run, args=(stop,))
    thread.start()
    try:
        parts.manager.view()
        assert heard.acquire(timeout=5)
        parts.manager.view()  # Nothing has changed: nobody is asked.
        parts.hypervisor.report = AgentReport(hostname="second")
        parts.hypervisor._tell(Change.AGENT)
        parts.manager.view()
        assert heard.acquire(timeout=5), "asked only when the old one's pause was over"
        assert parts.agent.view.report.hostname == "second"
    finally:
        stop.set()
        parts.agent.wake()
        thread.join(10)
