"""What several programs read out of an object, a VM or a VMI in the same way. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from virt_core.apis import names

if TYPE_CHECKING:
    from virt_core.apis.meta import ObjectMeta
    from virt_core.apis.vm import VirtualMachine
    from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec


class HasMetadata(Protocol):
    metadata: ObjectMeta


def is_terminating(obj: HasMetadata) -> bool:
    """It was deleted, and goes as soon as nothing holds it any more."""
    return obj.metadata.deletion_timestamp is not None


def is_final(vmi: VirtualMachineInstance) -> bool:
    """It has ended, and no phase follows."""
    return vmi.status.phase in names.FINAL_PHASES


def has_metrics(spec: VirtualMachineInstanceSpec) -> bool:
    """Whether the guest is to know figures of its node."""
    on_disk = any(volume.downward_metrics is not None for volume in spec.volumes)
    return on_disk or spec.domain.devices.downward_metrics is not None


def in_mesh(vmi: VirtualMachineInstance) -> bool:
    """Whether its Pod gets a proxy of a service mesh."""
    return vmi.metadata.annotations.get(names.ANNOTATION_MESH, "").lower() == "true"


def grace_seconds(vmi: VirtualMachineInstance) -> int:
    """How long the guest has to shut down."""
    grace = vmi.spec.termination_grace_period_seconds
    return names.DEFAULT_GRACE_PERIOD_S if grace is None else max(grace, 0)


def run_strategy(vm: VirtualMachine) -> str:
    """`running` is the older way to say Always or Halted."""
    if vm.spec.run_strategy:
        return vm.spec.run_strategy
    return names.STRATEGY_ALWAYS if vm.spec.running else names.STRATEGY_HALTED
