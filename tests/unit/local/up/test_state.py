"""What an instance remembers: its settings, its supervisor, its processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from virt_core.runtime.procs import ProcessId
from virt_local.up import status
from virt_local.up.errors import UpError
from virt_local.up.instance import Instance, make_instance
from virt_local.up.loglines import find_log, tail
from virt_local.up.processes import Backoff, Component, exit_text, open_log
from virt_local.up.state import (
    AlreadyRunning,
    Lock,
    ProcessBook,
    decode_process,
    load_instance,
    save_settings,
    supervisor_of,
)


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return make_instance("t", str(tmp_path), 7000, 2, "10.9.0.0/16")


def test_settings_survive(instance: Instance) -> None:
    assert load_instance(instance.data_dir) is None
    save_settings(instance, components=True)
    found = load_instance(instance.data_dir)
    assert found is not None
    assert found[0] == instance


def test_one_supervisor_at_a_time(instance: Instance) -> None:
    first, second = Lock(instance), Lock(instance)
    first.acquire()
    with pytest.raises(AlreadyRunning):
        second.acquire()
    first.claim()
    assert supervisor_of(instance) == ProcessId.of(os.getpid())
    first.release()
    assert supervisor_of(instance) is None
    second.acquire()
    second.release()


def test_a_pid_that_belongs_to_another_process_now_is_not_ours(tmp_path: Path) -> None:
    book = ProcessBook(tmp_path)
    book.add("mine", os.getpid(), restarts=3)
    (tmp_path / "stale.pid").write_text(f"{os.getpid()} 1 0\n")
    (tmp_path / "broken.pid").write_text("x")
    assert list(book.living()) == ["mine"]
    assert {entry.component: entry.restarts for entry in book.entries()} == {"mine": 3, "stale": 0, "broken": 0}
    book.remove("mine")
    assert not book.living()


@pytest.mark.parametrize("text", ["", "1", "a b", "1 b"])
def test_broken_records(text: str) -> None:
    assert decode_process(text) is None


def test_the_back_off_doubles_and_is_forgotten_after_a_healthy_run() -> None:
    backoff = Backoff()
    assert [backoff.after(0.1) for _ in range(8)] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    assert backoff.after(31.0) == 0.2
    assert backoff.after(1.0) == 0.4


def test_a_component_of_a_node_starts_in_its_network() -> None:
    assert Component("a", ("x", "y"), "/run/netns/n").argv() == ["nsenter", "--net=/run/netns/n", "--", "x", "y"]
    assert Component("a", ("x", "y")).argv() == ["x", "y"]


def test_exit_texts() -> None:
    assert exit_text(-9) == "killed by SIGKILL"
    assert exit_text(3) == "exit code 3"


def test_logs_are_found_by_component(instance: Instance) -> None:
    for name in ("virt-api", "virt-handler@node1", "virt-handler@node2", "node@node1"):
        with open_log(instance.log_file(name)) as stream:
            stream.write(b"line\n" * 3)
    assert find_log(instance, "virt-api").stem == "virt-api"
    assert find_log(instance, "node").stem == "node@node1"
    assert find_log(instance, "virt-handler@node2").stem == "virt-handler@node2"
    with pytest.raises(UpError, match="virt-handler@node1, virt-handler@node2"):
        find_log(instance, "virt-handler")
    with pytest.raises(UpError, match="there are logs of node@node1"):
        find_log(instance, "nothing")


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("".join(f"{number}\n" for number in range(50000)))
    assert tail(path, 2) == "49998\n49999\n"
    assert tail(path, 0) == ""
    path.write_text("only")
    assert tail(path, 5) == "only"


def test_status_of_nothing(instance: Instance) -> None:
    found = status.read_status(instance)
    assert not found.running
    assert "virt-local up --detach" in status.render(instance, found)


def test_status_names_what_is_down(instance: Instance) -> None:
    book = ProcessBook(instance.run_dir / "pids")
    book.add("apiserver", os.getpid(), restarts=2)
    (instance.run_dir / "pids" / "virt-api.pid").write_text("1 1 4\n")
    found = status.read_status(instance)
    rows = {row["name"]: (row["state"], row["restarts"]) for row in found.components}
    assert rows == {"apiserver": ("running", 2), "virt-api": ("restarting", 4)}
    assert not found.ready
    assert "supervisor is gone" in status.render(instance, found)
