"""VirtualMachineInstancePreset: what VMIs with certain labels get when they are made."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virt_core.apis.base import REQUIRED, Struct
from virt_core.apis.domain import DomainSpec
from virt_core.apis.meta import LabelSelector, ObjectMeta
from virt_core.apis.names import API_VERSION


class VirtualMachineInstancePresetSpec(Struct):
    """What is filled in, and into which VMIs."""

    #: Selects the VMIs by their labels.
    selector: Annotated[LabelSelector, REQUIRED] = field(default_factory=LabelSelector)
    domain: DomainSpec | None = None  #: What is filled in where the VMI says nothing.


class VirtualMachineInstancePreset(Struct):
    """Fills in parts of VMIs when they are made. Deprecated: use instance types and preferences."""

    api_version: str = API_VERSION
    kind: str = "VirtualMachineInstancePreset"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: What is filled in.
    spec: VirtualMachineInstancePresetSpec = field(default_factory=VirtualMachineInstancePresetSpec)
