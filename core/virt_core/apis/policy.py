"""MigrationPolicy: settings of migrations for some namespaces or VMIs."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from virt_core.apis.base import REQUIRED, Struct
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.migrationstate import ExperimentalMigrationConfiguration
from virt_core.apis.quantity import Quantity


class Selectors(Struct):
    """Which VMIs it is for."""

    namespace_selector: dict[str, str] = {}  #: Labels of their namespace.
    virtual_machine_instance_selector: dict[str, str] = {}  #: Their own labels.


class MigrationPolicySpec(Struct):
    """The settings, and whom they are for."""

    selectors: Annotated[Selectors, REQUIRED] = field(default_factory=Selectors)  #: Which VMIs it is for.
    allow_auto_converge: bool | None = None  #: Slow the guest down if it writes too fast.
    bandwidth_per_migration: Quantity | None = None  #: The limit in bytes a second; 0 is none.
    completion_timeout_per_gi_b: int | None = None  #: Seconds a GiB.
    #: The longest stop in milliseconds.
    max_downtime_ms: Annotated[int | None, Meta(extra_json_schema={"minimum": 1, "maximum": 2000000})] = None
    allow_post_copy: bool | None = None  #: Switch to post-copy if it takes too long.
    allow_workload_disruption: bool | None = None  #: Pause the guest if it takes too long.
    experimental: ExperimentalMigrationConfiguration | None = None  #: Settings that may change.


class MigrationPolicyStatus(Struct):
    """Nothing yet."""


class MigrationPolicy(Struct):
    """Settings of migrations for some namespaces or VMIs."""

    api_version: str = "migrations.kubevirt.io/v1alpha1"
    kind: str = "MigrationPolicy"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Annotated[MigrationPolicySpec, REQUIRED] = field(default_factory=MigrationPolicySpec)  #: The settings.
    status: MigrationPolicyStatus = field(default_factory=MigrationPolicyStatus)  #: Nothing yet.
