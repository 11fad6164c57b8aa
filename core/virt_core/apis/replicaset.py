"""VirtualMachineInstanceReplicaSet: a number of equal VMIs."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virt_core.apis.base import REQUIRED, Struct
from virt_core.apis.meta import Condition, LabelSelector, ObjectMeta
from virt_core.apis.names import API_VERSION
from virt_core.apis.vm import VirtualMachineInstanceTemplateSpec


class VirtualMachineInstanceReplicaSetSpec(Struct):
    """How many VMIs there shall be, and of what kind."""

    #: Selects the VMIs that belong to it.
    selector: Annotated[LabelSelector, REQUIRED] = field(default_factory=LabelSelector)
    #: What its VMIs are made from.
    template: Annotated[VirtualMachineInstanceTemplateSpec, REQUIRED] = field(
        default_factory=VirtualMachineInstanceTemplateSpec
    )
    replicas: int | None = None  #: How many there shall be; 1 by default.
    paused: bool = False  #: Whether it stands still.


class VirtualMachineInstanceReplicaSetStatus(Struct):
    """How many VMIs there are."""

    replicas: int = 0  #: VMIs that exist.
    ready_replicas: int = 0  #: VMIs that are ready.
    label_selector: str = ""  #: The selector, as text.
    conditions: list[Condition] = []  #: ReplicaFailure and ReplicaPaused.


class VirtualMachineInstanceReplicaSet(Struct):
    """Keeps a number of equal VMIs."""

    api_version: str = API_VERSION
    kind: str = "VirtualMachineInstanceReplicaSet"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: How many there shall be.
    spec: Annotated[VirtualMachineInstanceReplicaSetSpec, REQUIRED] = field(
        default_factory=VirtualMachineInstanceReplicaSetSpec
    )
    #: How many there are.
    status: VirtualMachineInstanceReplicaSetStatus = field(default_factory=VirtualMachineInstanceReplicaSetStatus)
