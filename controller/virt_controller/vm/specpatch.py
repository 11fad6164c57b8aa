"""Changes of a VM outside of its status: finalizer, run strategy, firmware UUID. One patch. Pure."""

from __future__ import annotations

from typing import Any

from virt_controller.vm import nics, volumerequests
from virt_controller.vm.setup import firmware_uuid
from virt_core.apis import names
from virt_core.apis.facts import is_terminating, run_strategy
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.patch import op

Operations = list[dict[str, Any]]

_FINALIZERS = "/metadata/finalizers"


def operations(vm: VirtualMachine, switch_to: str, vmi: VirtualMachineInstance | None = None) -> Operations:
    """What a VM that stays lacks, the strategy that it changes to, if any, and what its VMI is rid of for good."""
    if is_terminating(vm):
        return []
    result: Operations = []
    if names.FINALIZER_VM_CONTROLLER not in vm.metadata.finalizers:
        result.append(op.add(_FINALIZERS, [*vm.metadata.finalizers, names.FINALIZER_VM_CONTROLLER]))
    result += _firmware(vm) + nics.pruned_template(vm, vmi)
    if vm.status.snapshot_in_progress:
        return result  # Its volumes and its strategy stay until all is saved.
    return result + switched(vm, switch_to) + volumerequests.operations(vm)


def without_finalizer(vm: VirtualMachine) -> Operations:
    finalizers = vm.metadata.finalizers
    if names.FINALIZER_VM_CONTROLLER not in finalizers:
        return []
    return [op.add(_FINALIZERS, [f for f in finalizers if f != names.FINALIZER_VM_CONTROLLER])]


def switched(vm: VirtualMachine, wanted: str) -> Operations:
    """The run strategy, in the words that the VM has for it."""
    if not wanted or wanted == run_strategy(vm):
        return []
    simple = {names.STRATEGY_ALWAYS: True, names.STRATEGY_HALTED: False}
    if vm.spec.running is None:
        return [op.add("/spec/runStrategy", wanted)]
    if wanted in simple:
        return [op.replace("/spec/running", simple[wanted])]
    return [op.remove("/spec/running"), op.add("/spec/runStrategy", wanted)]


def _firmware(vm: VirtualMachine) -> Operations:
    """New VMs got one when they were made; an old one keeps what its name gives, even if it is renamed by a restore."""
    if vm.spec.template is None:
        return []
    firmware = vm.spec.template.spec.domain.firmware
    if firmware is None:
        return [op.add("/spec/template/spec/domain/firmware", {"uuid": firmware_uuid(vm)})]
    return [] if firmware.uuid else [op.add("/spec/template/spec/domain/firmware/uuid", firmware_uuid(vm))]
