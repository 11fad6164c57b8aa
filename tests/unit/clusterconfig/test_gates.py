"""Feature gates: state, then what the cluster lists."""

from __future__ import annotations

import pytest
from framework.supported import ALL_GATES

from virt_core.apis.gates import ALPHA, BETA, DEPRECATED, DISCONTINUED, GA, GATES, enabled_gates, is_enabled, warnings
from virt_core.apis.support.table import FEATURES, TODAY


@pytest.mark.parametrize(
    ("gate", "enabled", "disabled", "expected"),
    [
        ("NUMA", [], [], True),
        ("NUMA", [], ["NUMA"], True),  # GA cannot be turned off.
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
    assert is_enabled(gate, enabled, disabled, missing=frozenset()) is expected
    assert (gate in enabled_gates(enabled, disabled, missing=frozenset())) is expected


def test_a_cluster_that_lists_nothing_has_beta_and_ga_and_nothing_else() -> None:
    assert {gate for gate, state in GATES.items() if state in (GA, BETA)} == ALL_GATES


def test_a_gate_behind_which_nothing_is_built_is_off_and_says_so() -> None:
    assert {"DecentralizedLiveMigration", "OCIExport"} <= TODAY.missing_gates
    assert enabled_gates() == ALL_GATES - TODAY.missing_gates
    assert not enabled_gates(enabled=GATES) & TODAY.missing_gates
    assert warnings(["OCIExport"]) == [
        "feature gate OCIExport stands for something that is not built and has no effect"
    ]


def test_every_gate_that_can_be_on_belongs_to_a_row_of_the_table() -> None:
    named = {gate for feature in FEATURES for gate in feature.gates}
    assert named == {gate for gate, state in GATES.items() if state != DISCONTINUED}


def test_every_gate_has_one_known_state() -> None:
    assert set(GATES.values()) == {ALPHA, BETA, GA, DEPRECATED, DISCONTINUED}
    assert len(GATES) == 15 + 31 + 31 + 4 + 4


def test_warnings_name_gates_that_need_not_or_should_not_be_listed() -> None:
    found = warnings(["NonRoot", "HostDisk", "Passt", "HotplugVolumes", "Typo"])
    assert [line.split()[2] for line in found] == ["NonRoot", "Passt", "HotplugVolumes", "Typo"]
