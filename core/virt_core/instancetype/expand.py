"""A VM with its instance type and preference written out, and what stands in the way of that."""

from __future__ import annotations

from virt_core.apis.bindings import BRIDGE
from virt_core.apis.devices import Disk, Input
from virt_core.apis.interfaces import default_interface
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.networks import Network, PodNetwork
from virt_core.apis.vm import VirtualMachine, VirtualMachineInstanceTemplateSpec
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.instancetype.apply import TEMPLATE_SPEC, apply, copy_of, find_conflicts
from virt_core.instancetype.conflicts import Conflict
from virt_core.instancetype.find import Found, Lookup, kind_key, resolve
from virt_core.instancetype.preferences import apply_autoattach
from virt_core.instancetype.requirements import unmet_requirements

DEFAULT_NETWORK = "default"
DEFAULT_INPUT = "default-0"
_ANNOTATION = "kubevirt.io/"


class ConflictError(ValueError):
    """The VM and its instance type do not go together."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        super().__init__("; ".join(str(conflict) for conflict in conflicts))
        self.conflicts = conflicts


def check(vm: VirtualMachine, found: Found) -> list[Conflict]:
    """All that admission refuses. Changes nothing."""
    template = vm.spec.template
    if template is None:
        return []
    metadata = template.metadata or ObjectMeta()
    conflicts: list[Conflict] = []
    if found.instancetype is not None:
        conflicts = find_conflicts(template.spec, metadata, found.instancetype, found.preference)
    return conflicts + unmet_requirements(template.spec, found.instancetype, found.preference)


def expand_vm(vm: VirtualMachine, lookup: Lookup, default_interface: str = "bridge") -> VirtualMachine:
    """A copy that means the same without instance type and preference; the VM itself where it has neither.

    Raises NotFoundError, ConflictError, and what the lookup raises. Defaults of VMIs come after, they are not set here.
    """
    if vm.spec.instancetype is None and vm.spec.preference is None:
        return vm
    found = resolve(vm, lookup)
    copy = copy_of(vm)
    template = copy.spec.template = copy.spec.template or VirtualMachineInstanceTemplateSpec()
    template.metadata = template.metadata or ObjectMeta()
    conflicts = shape(template.spec, template.metadata, found, default_interface, TEMPLATE_SPEC)
    if conflicts:
        raise ConflictError(conflicts)
    _storage_class(copy, found)
    copy.spec.instancetype = copy.spec.preference = None
    return copy


def shape(
    spec: VirtualMachineInstanceSpec,
    metadata: ObjectMeta,
    found: Found,
    default_interface: str = "bridge",
    path: str = "spec",
) -> list[Conflict]:
    """What the VM's controller does to a new VMI: the devices that come by themselves, then the instance type and the
    preference, which so reaches those devices too. In place; with conflicts the size stays as it was."""
    wanted = found.preference.devices if found.preference is not None else None
    if wanted is not None:
        apply_autoattach(spec.domain.devices, copy_of(wanted))
    add_default_devices(spec, default_interface)
    return apply(spec, metadata, found.instancetype, found.preference, path)


def add_default_devices(spec: VirtualMachineInstanceSpec, binding: str = BRIDGE) -> None:
    """A disk for each volume that has none, a NIC where there is none, a tablet where one is asked for."""
    devices = spec.domain.devices
    shown = {disk.name for disk in devices.disks} | {filesystem.name for filesystem in devices.filesystems}
    missing = [volume.name for volume in spec.volumes if volume.name not in shown and volume.memory_dump is None]
    devices.disks = [*devices.disks, *(Disk(name=name) for name in dict.fromkeys(missing))]
    if devices.autoattach_pod_interface is not False and not spec.networks and not devices.interfaces:
        devices.interfaces = [default_interface(DEFAULT_NETWORK, binding)]
        spec.networks = [Network(name=DEFAULT_NETWORK, pod=PodNetwork())]
    if devices.autoattach_input_device and not devices.inputs:
        # Bus and type are left to the preference, then to the defaults.
        devices.inputs = [Input(name=DEFAULT_INPUT, type="")]


def _storage_class(vm: VirtualMachine, found: Found) -> None:
    """DataVolumes that name no storage class get the preferred one."""
    volumes = found.preference.volumes if found.preference is not None else None
    if volumes is None or not volumes.preferred_storage_class_name:
        return
    for template in vm.spec.data_volume_templates:
        for part in ("pvc", "storage"):
            claim = template.spec.get(part)
            if isinstance(claim, dict) and not claim.get("storageClassName"):
                template.spec[part] = {**claim, "storageClassName": volumes.preferred_storage_class_name}


def annotations_for(vm: VirtualMachine) -> dict[str, str]:
    """The annotations by which a VMI tells what it was made with."""
    named: dict[str, str] = {}
    for matcher, word in ((vm.spec.instancetype, "instancetype"), (vm.spec.preference, "preference")):
        if matcher is not None and matcher.name:
            cluster = kind_key(matcher.kind, matcher).startswith("virtualmachinecluster")
            named[f"{_ANNOTATION}{'cluster-' if cluster else ''}{word}-name"] = matcher.name
    return named
