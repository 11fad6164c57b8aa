"""The guest's memory cells: those of the node's that its CPUs are in, with all of its memory in whole pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virt_launcher.convert.cpuplan import HostCpu, Wish, hand_out
from virt_launcher.convert.numaplan import GuestCell, TooFewPages, guest_cells

PAGE = 2 << 20


def test_one_cell_has_everything() -> None:
    assert guest_cells((4, 6), {4: 3, 5: 0, 6: 3}, 64, PAGE) == [GuestCell(3, (0, 1), 64 * PAGE)]


def test_two_cells_share_the_memory() -> None:
    cells = guest_cells((0, 8, 1, 9), {0: 0, 1: 0, 8: 1, 9: 1}, 64, PAGE)
    assert cells == [GuestCell(0, (0, 2), 32 * PAGE), GuestCell(1, (1, 3), 32 * PAGE)]


def test_uneven_cpus_and_uneven_pages() -> None:
    cells = guest_cells((0, 1, 8), {0: 0, 1: 0, 8: 2}, 65, PAGE)
    assert cells == [GuestCell(0, (0, 1), 33 * PAGE), GuestCell(2, (2,), 32 * PAGE)]


def test_a_cell_without_a_page_is_refused() -> None:
    with pytest.raises(TooFewPages, match="1 pages of 1073741824 bytes are too few for 2 memory cells"):
        guest_cells((0, 1), {0: 0, 1: 1}, 1, 1 << 30)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(4, 400))
def test_nothing_is_lost_and_nothing_is_elsewhere(places: list[int], pages: int) -> None:
    cell_of = {cpu + 10: place for cpu, place in enumerate(places)}
    cells = guest_cells(tuple(cell_of), cell_of, pages, PAGE)
    assert sum(cell.memory for cell in cells) == pages * PAGE
    assert max(c.memory for c in cells) - min(c.memory for c in cells) <= PAGE
    assert sorted(vcpu for cell in cells for vcpu in cell.vcpus) == list(range(len(places)))
    assert all(places[vcpu] == cell.node for cell in cells for vcpu in cell.vcpus)


@given(st.lists(st.integers(0, 2), min_size=2, max_size=12), st.integers(1, 2))
def test_no_core_of_the_guest_lies_in_two_cells(places: list[int], threads: int) -> None:
    cpus = [HostCpu(place, number // 2, number) for number, place in enumerate(places)]
    vcpus = hand_out(cpus, Wish(len(cpus) // threads, threads, whole_cells=True)).vcpus
    cores = [vcpus[n : n + threads] for n in range(0, len(vcpus), threads)]
    assert all(len({places[cpu] for cpu in core}) == 1 for core in cores)
    assert len(cores) == sum(places.count(cell) // threads for cell in set(places))
