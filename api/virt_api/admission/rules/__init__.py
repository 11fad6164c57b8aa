"""The rules of a VMI spec: one table, one row each. A rule yields what is wrong and knows nothing of the others."""

from __future__ import annotations

from collections.abc import Iterator

from virt_api.admission import deadline
from virt_api.admission.causes import Cause
from virt_api.admission.rules import (
    claims,
    cpu,
    devices,
    disks,
    firmware,
    general,
    memory,
    networks,
    ports,
    scheduling,
    volumes,
)
from virt_api.admission.rules.base import Check, Rule

#: For every place that holds a VMI spec: a VMI, and later the template of a VM, a replica set or a pool.
SPEC_RULES: tuple[Rule, ...] = (
    general.hostname,
    memory.guest_size,
    memory.requested_memory,
    memory.hugepages,
    memory.guest_within_limit,
    memory.reserved_overhead,
    memory.requested_cpu,
    firmware.machine_type,
    firmware.acpi_tables,
    cpu.vcpu_count,
    cpu.dedicated_placement,
    cpu.numa,
    cpu.isolated_emulator,
    cpu.feature_policies,
    cpu.sockets,
    cpu.realtime,
    general.start_strategy,
    general.grace_period,
    scheduling.affinity,
    scheduling.topology_spread,
    networks.one_default_network,
    networks.network_sources,
    networks.network_names,
    networks.pod_network_cidrs,
    networks.resource_claims,
    networks.interface_names,
    networks.interface_bindings,
    networks.binding_plugins,
    networks.binding_options,
    networks.interface_states,
    networks.interface_options,
    networks.interface_ports,
    ports.port_ranges,
    devices.resource_claims,
    claims.networks_by_claim,
    claims.claimed_once,
    devices.gpus,
    devices.host_devices,
    disks.disk_names,
    disks.disk_targets,
    disks.disk_buses,
    disks.disk_pci_addresses,
    disks.boot_orders,
    disks.disk_options,
    disks.block_sizes,
    disks.downward_metrics_disks,
    disks.lun_reservations,
    disks.filesystems,
    devices.inputs,
    devices.io_threads,
    general.probes,
    firmware.bootloader,
    firmware.kernel_boot,
    firmware.secure_boot,
    volumes.volume_names,
    volumes.volume_sources,
    volumes.volume_references,
    volumes.cloud_init,
    volumes.container_disks,
    volumes.empty_disks,
    volumes.host_disks,
    volumes.at_most_one,
    volumes.downward_metrics,
    volumes.utility_volumes,
    general.access_credentials,
    general.dns,
    general.dns_config,
    general.eviction_strategy,
    devices.sound,
    firmware.launch_security,
    devices.vsock,
    devices.video,
    devices.panic_devices,
    devices.reboot_policy,
    general.service_account_name,
    volumes.service_account,
)

#: Only for a VMI that is created.
CREATE_RULES: tuple[Rule, ...] = (
    volumes.volumes_are_shown,
    volumes.container_paths,
    memory.memory_given,
    firmware.hyperv,
    firmware.architecture,
    firmware.by_architecture,
)


def broken_rules(check: Check, rules: tuple[Rule, ...]) -> Iterator[Cause]:
    """Every cause that any of the rules finds."""
    for rule in rules:
        deadline.check()
        yield from rule(check)
