"""Feature gates: state, then what the cluster lists."""

from __future__ import annotations

import pytest

from virt_core.apis.gates import ALPHA, BETA, DEPRECATED, DISCONTINUED, GA, GATES, enabled_gates, is_enabled, warnings


@pytest.mark.parametrize(
    ("gate", "enabled", "disabled", "expected"),
    [
        ("NUMA", [], [], True),
        ("NUMA", [], ["NUMA"], True),  # GA can not be turned off.
        ("Snapshot", [], [], True),
        ("Snapshot", [], ["Snapshot"], False),
        ("Snapshot", ["Snapshot"], ["Snapshot"], True),  # Enabling goes before disabling.
        ("HostDisk", [], [], False),
        ("HostDisk", ["HostDisk"], [], True),
        ("HostDisk", ["HostDisk"], ["HostDisk"], True),
        ("HotplugVolumes", [], [], False),
        ("HotplugVolumes", ["HotplugVolumes"], [], True),
        ("Macvtap", ["Macvtap"], [], False),  # Discontinued never comes back.
        ("NoSuchGate", ["NoSuchGate"], [], False),
    ],
)
def test_precedence(gate: str, enabled: list[str], disabled: list[str], expected: bool) -> None:
    assert is_enabled(gate, enabled, disabled) is expected
    assert (gate in enabled_gates(enabled, disabled)) is expected


def test_a_cluster_that_lists_nothing_has_beta_and_ga_and_nothing_else() -> None:
    assert enabled_gates() == {gate for gate, state in GATES.items() if state in (GA, BETA)}


def test_every_gate_has_one_known_state() -> None:
    assert set(GATES.values()) == {ALPHA, BETA, GA, DEPRECATED, DISCONTINUED}
    assert len(GATES) == 15 + 31 + 31 + 4 + 4


def test_warnings_name_gates_that_need_not_or_should_not_be_listed() -> None:
    found = warnings(["NUMA", "HostDisk", "Passt", "HotplugVolumes", "Typo"])
    assert [line.split()[2] for line in found] == ["NUMA", "Passt", "HotplugVolumes", "Typo"]
