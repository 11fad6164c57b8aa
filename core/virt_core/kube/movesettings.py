"""The settings that one move runs with: the cluster's, and those of the policy that fits the machine best. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from virt_core.apis.migrationstate import MigrationConfiguration
from virt_core.apis.policy import MigrationPolicy
from virt_core.kube.configvalues import MigrationLimits

_OVERRIDES = (
    "allow_auto_converge",
    "bandwidth_per_migration",
    "completion_timeout_per_gi_b",
    "max_downtime_ms",
    "allow_post_copy",
    "allow_workload_disruption",
    "experimental",
)


def best_policy(
    policies: Iterable[MigrationPolicy], labels: Mapping[str, str], namespace_labels: Mapping[str, str]
) -> MigrationPolicy | None:
    """The one that names most labels, all of which fit; of two the first by name."""
    fitting = [(count, policy) for policy in policies if (count := _matches(policy, labels, namespace_labels))]
    fitting.sort(key=lambda each: (-each[0], each[1].metadata.name))
    return fitting[0][1] if fitting else None


def _matches(policy: MigrationPolicy, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> int:
    """How many labels it names; 0: it names none, or one does not fit."""
    selectors = policy.spec.selectors
    wanted = ((selectors.virtual_machine_instance_selector, labels), (selectors.namespace_selector, namespace_labels))
    if any(given.get(key) != value for selector, given in wanted for key, value in selector.items()):
        return 0
    return sum(len(selector) for selector, _ in wanted)


def settle(limits: MigrationLimits, policy: MigrationPolicy | None) -> MigrationConfiguration:
    config = MigrationConfiguration(
        allow_auto_converge=limits.allow_auto_converge,
        bandwidth_per_migration=str(limits.bandwidth),
        completion_timeout_per_gi_b=limits.completion_timeout_per_gib_s,
        progress_timeout=limits.progress_timeout_s,
        unsafe_migration_override=limits.unsafe_migration_override,
        allow_post_copy=limits.allow_post_copy,
        allow_workload_disruption=limits.allow_workload_disruption,
        parallel_migrations_per_cluster=limits.parallel_per_cluster,
        parallel_outbound_migrations_per_node=limits.parallel_outbound_per_node,
        node_drain_taint_key=limits.node_drain_taint_key,
    )
    if policy is None:
        return config
    given: dict[str, Any] = {name: getattr(policy.spec, name) for name in _OVERRIDES}
    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen.get("allow_post_copy") and "allow_workload_disruption" not in chosen:
        chosen["allow_workload_disruption"] = True
    return replace(config, **chosen)
