"""VirtualMachinePool: a number of VMs made from one template."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virt_core.apis.base import REQUIRED, Struct
from virt_core.apis.meta import Condition, LabelSelector, ObjectMeta
from virt_core.apis.quantity import IntOrString
from virt_core.apis.scheduling import NodeSelectorRequirement
from virt_core.apis.vm import VirtualMachineSpec


class VirtualMachineTemplateSpec(Struct):
    """What the pool's VMs are made from."""

    metadata: ObjectMeta | None = None  #: Labels and annotations of the VMs.
    spec: VirtualMachineSpec = field(default_factory=VirtualMachineSpec)  #: The VMs' spec.


class VirtualMachinePoolNameGeneration(Struct):
    """Which names get the VM's number."""

    append_index_to_config_map_refs: bool | None = None  #: Append it to the names of ConfigMaps.
    append_index_to_secret_refs: bool | None = None  #: Append it to the names of Secrets.


class VirtualMachinePoolSelectors(Struct):
    """Which VMs are chosen. All that are given must match."""

    label_selector: LabelSelector | None = None  #: By their labels.
    node_selector_requirement_matcher: list[NodeSelectorRequirement] = []  #: By the labels of their nodes.


class VirtualMachinePoolSelectionPolicy(Struct):
    """The order in which VMs are chosen."""

    selectors: VirtualMachinePoolSelectors | None = None  #: The VMs that may be chosen; all by default.
    sort_policy: str | None = None  #: AscendingOrder, DescendingOrder, Newest, Oldest or Random.


class VirtualMachinePoolUnmanagedStrategy(Struct):
    """Leave it to the user."""


class VirtualMachinePoolOpportunisticScaleInStrategy(Struct):
    """Take no VM away: the user deletes them."""

    #: What stays of a VM that goes: Disabled (nothing), Offline or Online (its volumes).
    state_preservation: str | None = None


class VirtualMachinePoolProactiveScaleInStrategy(Struct):
    """Take VMs away, running or not."""

    selection_policy: VirtualMachinePoolSelectionPolicy | None = None  #: Which go first.
    #: What stays of a VM that goes: Disabled (nothing), Offline or Online (its volumes).
    state_preservation: str | None = None


class VirtualMachinePoolScaleInStrategy(Struct):
    """How VMs are taken away. At most one."""

    unmanaged: VirtualMachinePoolUnmanagedStrategy | None = None  #: The user takes them away.
    opportunistic: VirtualMachinePoolOpportunisticScaleInStrategy | None = None  #: Those that the user deletes.
    proactive: VirtualMachinePoolProactiveScaleInStrategy | None = None  #: Running or not.


class VirtualMachineOpportunisticUpdateStrategy(Struct):
    """Update a VM; the user restarts it."""


class VirtualMachinePoolProactiveUpdateStrategy(Struct):
    """Update a VM and restart it."""

    selection_policy: VirtualMachinePoolSelectionPolicy | None = None  #: Which go first.


class VirtualMachinePoolUpdateStrategy(Struct):
    """How a change of the template reaches the VMs. At most one."""

    unmanaged: VirtualMachinePoolUnmanagedStrategy | None = None  #: Not at all.
    opportunistic: VirtualMachineOpportunisticUpdateStrategy | None = None  #: Without restarting them.
    proactive: VirtualMachinePoolProactiveUpdateStrategy | None = None  #: With a restart.


class VirtualMachinePoolAutohealingStrategy(Struct):
    """When a VM that fails to start is replaced."""

    start_up_failure_threshold: int | None = None  #: Failures in a row; 3 by default.
    min_failing_to_start_duration: str | None = None  #: How long it must have been failing; 5m by default.


class VirtualMachinePoolSpec(Struct):
    """How many VMs there shall be, and of what kind."""

    #: Selects the VMs that belong to the pool.
    selector: Annotated[LabelSelector, REQUIRED] = field(default_factory=LabelSelector)
    #: What its VMs are made from.
    virtual_machine_template: Annotated[VirtualMachineTemplateSpec, REQUIRED] = field(
        default_factory=VirtualMachineTemplateSpec
    )
    replicas: int | None = None  #: How many there shall be; 1 by default.
    paused: bool = False  #: Whether it stands still.
    name_generation: VirtualMachinePoolNameGeneration | None = None  #: Which names get the VM's number.
    max_unavailable: IntOrString | None = None  #: How many may be away during an update; 100% by default.
    scale_in_strategy: VirtualMachinePoolScaleInStrategy | None = None  #: How VMs are taken away.
    update_strategy: VirtualMachinePoolUpdateStrategy | None = None  #: How a change of the template reaches the VMs.
    autohealing: VirtualMachinePoolAutohealingStrategy | None = None  #: When a VM that fails to start is replaced.


class VirtualMachinePoolStatus(Struct):
    """How many VMs there are."""

    replicas: int = 0  #: VMs that exist.
    ready_replicas: int = 0  #: VMs that are ready.
    label_selector: str = ""  #: The selector, as text.
    conditions: list[Condition] = []  #: ReplicaFailure and ReplicaPaused.


class VirtualMachinePool(Struct):
    """Keeps a number of VMs made from one template."""

    api_version: str = "pool.kubevirt.io/v1beta1"
    kind: str = "VirtualMachinePool"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: How many there shall be.
    spec: Annotated[VirtualMachinePoolSpec, REQUIRED] = field(default_factory=VirtualMachinePoolSpec)
    status: VirtualMachinePoolStatus = field(default_factory=VirtualMachinePoolStatus)  #: How many there are.
