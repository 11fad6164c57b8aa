"""Whether a VMI could move to another node while it runs, by what its spec uses. Pure."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.bindings import BRIDGE, binding_of
from virt_core.apis.support.cluster import LIVE_MIGRATION
from virt_core.apis.support.table import TODAY, Support
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus
from virt_core.kube.vmistatus import with_condition

#: While live migration is not built no VMI claims that it could move, so that nobody (an eviction, a drain, a user)
#: waits for a move that never comes.
REASON_NOT_AVAILABLE = "MigrationNotAvailable"

METHOD_LIVE = "LiveMigration"
METHOD_BLOCK = "BlockMigration"


def obstacle(vmi: VirtualMachineInstance) -> tuple[str, str] | None:
    """Reason and sentence of the first thing that ties the guest to its node."""
    domain = vmi.spec.domain
    devices = domain.devices
    on_pod_network = {network.name for network in vmi.spec.networks if network.pod is not None}
    bridged = any(binding_of(nic) == BRIDGE and nic.name in on_pod_network for nic in devices.interfaces)
    if bridged and names.ANNOTATION_POD_BRIDGE_MIGRATION not in vmi.metadata.annotations:
        return (
            names.REASON_INTERFACE_NOT_MIGRATABLE,
            "a bridge on the Pod network gives the guest the Pod's own address",
        )
    if devices.host_devices or devices.gpus:
        return names.REASON_HOST_DEVICE_NOT_MIGRATABLE, "the guest uses a device of its node"
    if devices.filesystems:
        return names.REASON_VIRTIOFS_NOT_MIGRATABLE, "the guest shares a filesystem with its Pod"
    if domain.cpu is not None and domain.cpu.model == "host-passthrough":
        return names.REASON_CPU_NOT_MIGRATABLE, "the guest sees its node's own processor"
    if tied := _tied_disk(vmi):
        return names.REASON_DISKS_NOT_MIGRATABLE, f"only one node at a time reaches the disk {tied}"
    return None


def _tied_disk(vmi: VirtualMachineInstance) -> str:
    """A volume that another node cannot have at the same time; empty when there is none."""
    claims = {status.name: status.persistent_volume_claim_info for status in vmi.status.volume_status}
    for volume in vmi.spec.volumes:
        claim = claims.get(volume.name)
        if volume.host_disk is not None and not volume.host_disk.shared:
            return volume.name
        if claim is not None and volume.ephemeral is None and "ReadWriteMany" not in claim.access_modes:
            return volume.name
    return ""


def method(vmi: VirtualMachineInstance) -> str:
    """Disks that live in the Pod travel with the guest; without any, memory is enough."""
    local = any(volume.container_disk or volume.empty_disk for volume in vmi.spec.volumes)
    return METHOD_BLOCK if local else METHOD_LIVE


def with_conditions(
    vmi: VirtualMachineInstance, status: VirtualMachineInstanceStatus, now: datetime, support: Support = TODAY
) -> VirtualMachineInstanceStatus:
    """The VMI's own obstacle comes first: it stays when migration gets built."""
    built = support.is_built(LIVE_MIGRATION)
    missing = None if built else (REASON_NOT_AVAILABLE, support.refusal(LIVE_MIGRATION))
    status = _condition(status, names.CONDITION_LIVE_MIGRATABLE, obstacle(vmi) or missing, now)
    status = _condition(status, names.CONDITION_STORAGE_LIVE_MIGRATABLE, missing, now)
    return replace(status, migration_method=method(vmi) if built else "")


def _condition(
    status: VirtualMachineInstanceStatus, kind: str, against: tuple[str, str] | None, now: datetime
) -> VirtualMachineInstanceStatus:
    if against is None:
        return with_condition(status, kind, names.TRUE, now=now)
    return with_condition(status, kind, names.FALSE, *against, now=now)
