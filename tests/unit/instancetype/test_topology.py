from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virt_core.apis.base import from_plain
from virt_core.apis.preference import VirtualMachinePreferenceSpec
from virt_core.instancetype.topology import SPREADS, TOPOLOGIES, Topology, preferred, spread_conflict, topology_of


def prefer(topology: str | None = None, ratio: int | None = None, across: str | None = None, old_ratio: int = 0) -> Any:
    options = {key: value for key, value in (("ratio", ratio), ("across", across)) if value is not None}
    plain: dict[str, Any] = {"cpu": {"spreadOptions": options}, "preferSpreadSocketToCoreRatio": old_ratio}
    if topology:
        plain["cpu"]["preferredCPUTopology"] = topology
    return from_plain(plain, VirtualMachinePreferenceSpec)


@pytest.mark.parametrize(
    ("vcpus", "preference", "expected"),
    [
        (4, None, Topology(4, 1, 1)),
        (4, prefer(), Topology(4, 1, 1)),
        (1, prefer("cores"), Topology(1, 1, 1)),
        (4, prefer("sockets"), Topology(4, 1, 1)),
        (4, prefer("cores"), Topology(1, 4, 1)),
        (4, prefer("threads"), Topology(1, 1, 4)),
        (4, prefer("any"), Topology(4, 1, 1)),
        (4, prefer("preferCores"), Topology(1, 4, 1)),
        (4, prefer("preferThreads"), Topology(1, 1, 4)),
        (8, prefer("spread"), Topology(4, 2, 1)),
        (8, prefer("preferSpread", old_ratio=4), Topology(2, 4, 1)),
        (8, prefer("spread", ratio=2, old_ratio=4), Topology(4, 2, 1)),
        (8, prefer("spread", across="SocketsCoresThreads"), Topology(2, 2, 2)),
        (8, prefer("spread", across="CoresThreads"), Topology(1, 4, 2)),
        (12, prefer("spread", ratio=3, across="SocketsCoresThreads"), Topology(2, 3, 2)),
    ],
)
def test_topologies(vcpus: int, preference: Any, expected: Topology) -> None:
    assert spread_conflict(vcpus, preference) is None or vcpus == 1
    assert topology_of(vcpus, preference) == expected


@pytest.mark.parametrize(
    ("vcpus", "preference"),
    [
        (3, prefer("spread")),
        (1, prefer("spread")),
        (6, prefer("spread", ratio=4)),
        (6, prefer("spread", across="SocketsCoresThreads")),
        (5, prefer("spread", across="CoresThreads")),
    ],
)
def test_a_spread_that_does_not_come_out_even_is_a_conflict(vcpus: int, preference: Any) -> None:
    conflict = spread_conflict(vcpus, preference)
    assert conflict is not None
    assert conflict.field == "instancetype.spec.cpu.guest"
    assert str(vcpus) in conflict.message


def test_without_a_spread_every_number_will_do() -> None:
    assert all(spread_conflict(number, prefer("cores", ratio=4)) is None for number in range(1, 9))
    assert preferred(prefer("preferAny")) == "any"


@given(
    st.integers(1, 512),
    st.sampled_from([None, *TOPOLOGIES]),
    st.none() | st.integers(1, 16),
    st.none() | st.sampled_from(SPREADS),
)
def test_the_parts_always_make_up_all_vcpus(vcpus: int, topology: Any, ratio: Any, across: Any) -> None:
    preference = prefer(topology, ratio, across)
    found = topology_of(vcpus, preference)
    if spread_conflict(vcpus, preference) is None:
        assert found.sockets * found.cores * found.threads == vcpus
