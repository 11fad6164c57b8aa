"""Which engine answers what where there is no time to ask both: with VIRTPOD_SHORT, as in CI (decision 53).

Without it every test runs on the engine it is started on. A test whose file is not named here runs on virt-local.
"""

from __future__ import annotations

import os
from pathlib import Path

#: Two real nodes, their kubelets and an emulator new enough that a moved guest is whole.
CLUSTER_ONLY = {
    "test_evacuation",
    "test_eviction",
    "test_migration",
    "test_migration_faults",
    "test_migration_user",
    "test_migration_whole",
    "test_nodes",
    "test_volume_moves",
}
#: What stands or falls with who runs the Pods, serves the API and asks for passports.
BOTH = {
    "test_access",
    "test_boot",
    "test_forgeries",
    "test_hotplug_disks",
    "test_isolation",
    "test_lessons",
    "test_persistent_state",
    "test_secondary_networks",
    "test_strangers",
    "test_vm",
}
#: Guests that move, on a virt-local whose emulator is new enough: on CI's Debian 13.
NEW_EMULATOR = {"test_binding_moves", "test_changed_network", "test_services"}


def is_left_out(path: Path, *, short: str, on_cluster: bool) -> bool:
    """`short` says which part is asked for: empty for all of it, "moves" for what needs the newer emulator."""
    name = path.stem
    if not short or "e2e" not in path.parts:
        return False
    if on_cluster:
        return name not in CLUSTER_ONLY | BOTH
    if short == "moves":
        return name not in NEW_EMULATOR | {"test_boot"}
    return name in CLUSTER_ONLY | NEW_EMULATOR


def asked_for() -> str:
    return os.environ.get("VIRTPOD_SHORT", "")
