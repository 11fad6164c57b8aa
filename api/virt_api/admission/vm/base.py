"""What every rule about a VM gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from virt_api.admission.causes import Cause
from virt_core.apis.vm import VirtualMachineSpec
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.kube.configvalues import ClusterConfig


@dataclass(frozen=True, slots=True)
class VMCheck:
    """A VM's spec as its author wrote it, its machine as it would run, and where both stand in their object."""

    spec: VirtualMachineSpec
    machine: VirtualMachineInstanceSpec
    config: ClusterConfig
    path: str = "spec"

    @property
    def template(self) -> str:
        return f"{self.path}.template"


VMRule = Callable[[VMCheck], Iterator[Cause]]
