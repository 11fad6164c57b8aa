"""CPUs of the Pod handed out: each to one only, close ones together."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.launcher.cases import TWO_CELLS
from virt_launcher.convert.cpuplan import HostCpu, Plan, Wish, cpuset, hand_out, shares
from virt_launcher.errors import LauncherError
from virt_launcher.machine import pinning


@st.composite
def pods(draw: st.DrawFn) -> tuple[list[HostCpu], Wish]:
    """A wish, and as many CPUs as it counts, out of a node with cells, cores and threads of any number."""
    wish = Wish(
        draw(st.integers(1, 6)), draw(st.integers(1, 2)), draw(st.integers(0, 3)), draw(st.sampled_from((0, 1, 2)))
    )
    spare = draw(st.integers(0, 8))
    places = st.tuples(st.integers(0, 2), st.integers(0, 5))
    places_of = draw(st.lists(places, min_size=wish.total + spare, max_size=wish.total + spare))
    node = [HostCpu(cell, cell * 10 + core, number) for number, (cell, core) in enumerate(places_of)]
    return draw(st.permutations(node))[: wish.total], wish


@given(pods())
def test_every_cpu_has_one_user(pod: tuple[list[HostCpu], Wish]) -> None:
    cpus, wish = pod
    plan = hand_out(cpus, wish)
    assert (len(plan.vcpus), len(plan.io_pool), len(plan.emulator)) == (wish.vcpus, wish.io_pool, wish.emulator)
    assert sorted((*plan.vcpus, *plan.io_pool, *plan.emulator)) == sorted(cpu.number for cpu in cpus)


@given(pods())
def test_no_core_of_the_guest_is_split_while_a_whole_one_is_left(pod: tuple[list[HostCpu], Wish]) -> None:
    cpus, wish = pod
    plan = hand_out(cpus, wish)
    place = {cpu.number: cpu for cpu in cpus}
    cores = [plan.vcpus[n : n + wish.threads] for n in range(0, wish.vcpus, wish.threads)]
    split = [core for core in cores if len({place[n].core for n in core}) > 1]
    across = [core for core in cores if len({place[n].cell for n in core}) > 1]
    in_core: dict[int, int] = {}
    in_cell: dict[int, int] = {}
    for cpu in cpus:
        in_core[cpu.core] = in_core.get(cpu.core, 0) + 1
        in_cell[cpu.cell] = in_cell.get(cpu.cell, 0) + 1
    assert len(cores) - len(split) == min(len(cores), sum(n // wish.threads for n in in_core.values()))
    assert len(across) <= max(len(cores) - sum(n // wish.threads for n in in_cell.values()), 0)


@given(st.integers(1, 9), st.integers(1, 9))
def test_io_threads_share_the_vcpus_evenly(threads: int, vcpus: int) -> None:
    shared = shares(threads, Plan(tuple(range(10, 10 + vcpus))))
    assert len(shared) == threads
    assert all(shared)
    users = [sum(cpu in cpus for cpus in shared) for cpu in range(10, 10 + vcpus)]
    assert max(users) - min(users) <= 1
    assert max(map(len, shared)) - min(map(len, shared)) <= 1


def test_io_threads_leave_the_vcpus_alone_where_the_emulator_has_its_own() -> None:
    assert shares(3, Plan((1, 2), emulator=(3, 4))) == [(3, 4)] * 3


def test_threads_of_a_core_stay_together() -> None:
    """CPU 4 is the second thread of CPU 0's core, and so on."""
    assert hand_out(TWO_CELLS[:5], Wish(2, 2, emulator=1)) == Plan((0, 4, 1, 5), emulator=(2,))
    fragments = (TWO_CELLS[0], *TWO_CELLS[2:5], TWO_CELLS[6])
    assert hand_out(fragments, Wish(2, 2, emulator=1)) == Plan((1, 5, 2, 3), emulator=(0,))
    assert cpuset((5, 1)) == "1,5"


def test_the_pods_cpus_are_read_with_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, siblings, cell in ((3, "1,3", 1), (5, "5-6", 0)):
        directory = tmp_path / f"cpu{number}"
        (directory / "topology").mkdir(parents=True)
        (directory / "topology/thread_siblings_list").write_text(siblings + "\n")
        (directory / f"node{cell}").mkdir()
    monkeypatch.setattr("virt_launcher.machine.pinning.os.sched_getaffinity", lambda pid: {9, 5, 3})
    assert pinning.host_cpus(tmp_path) == (HostCpu(1, 1, 3), HostCpu(0, 5, 5), HostCpu(0, 9, 9))


def test_a_vcpu_without_a_thread_is_an_error() -> None:
    with pytest.raises(LauncherError, match="vCPU 0 has no thread"):
        pinning.pin_vcpus(None, [0])
