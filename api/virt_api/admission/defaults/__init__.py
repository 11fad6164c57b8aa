"""What a VMI gets that its author left out: one tuple of small functions, in the order that KubeVirt documents."""

from __future__ import annotations

from collections.abc import Callable

from virt_api.admission.defaults import devices, machine, sizes
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.kube.configvalues import ClusterConfig

Default = Callable[[VirtualMachineInstanceSpec, ClusterConfig], None]

#: The order matters: later ones read what earlier ones filled in.
DEFAULTS: tuple[Default, ...] = (
    machine.architecture,
    machine.machine_type,
    sizes.cpu_request,
    sizes.guest_memory,
    sizes.cpu_topology,
    devices.image_pull_policy,
    machine.eviction_strategy,
    devices.pod_network,
    devices.disks_of_volumes,
    machine.no_acpi_on_s390x,
    machine.firmware_uuid,
    machine.feature_states,
    machine.timers,
    devices.disk_targets,
    devices.inputs,
    machine.probes,
    machine.hyperv_dependencies,
    machine.arm64_boot,
    devices.buses,
    devices.watchdog,
    machine.cpu_model,
    sizes.max_sockets,
    sizes.max_guest,
)


def apply_defaults(spec: VirtualMachineInstanceSpec, config: ClusterConfig) -> None:
    """Fills in the spec in place."""
    for default in DEFAULTS:
        default(spec, config)
