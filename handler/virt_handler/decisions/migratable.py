"""Whether a VMI could move to another node while it runs, by what its spec uses. Pure."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from virt_core.apis import bindingplugins, counter, names, travel
from virt_core.apis.bindingplugins import NO_PLUGINS, Configured
from virt_core.apis.bindings import MOVES_ELSEWHERE, STAYS
from virt_core.apis.devices import Interface
from virt_core.apis.keptstate import keeps_tpm, keeps_variables, tracks_blocks
from virt_core.apis.launchsecurity import PV, TDX, protection
from virt_core.apis.nodedevices import claimed_networks
from virt_core.apis.owncpus import sees_cells
from virt_core.apis.reservations import reserving
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VirtualMachineInstanceStatus
from virt_core.apis.volumemoves import moving
from virt_core.kube.vmistatus import with_condition

METHOD_LIVE = "LiveMigration"
METHOD_BLOCK = "BlockMigration"


Tie = tuple[str, str] | None


def obstacle(vmi: VirtualMachineInstance, plugins: Configured = NO_PLUGINS) -> Tie:
    """Reason and sentence of the first thing that ties the guest to its node."""
    return storage_obstacle(vmi, plugins) or _disks(vmi)


def storage_obstacle(vmi: VirtualMachineInstance, plugins: Configured = NO_PLUGINS) -> Tie:
    """The same, of a guest whose disks would all go to other claims."""
    for nic in vmi.spec.domain.devices.interfaces:
        if words := _tied_nic(vmi, nic, plugins):
            return names.REASON_INTERFACE_NOT_MIGRATABLE, words
    return next((tie for look in (_devices, _memory, _processor, _stored) if (tie := look(vmi)) is not None), None)


def _devices(vmi: VirtualMachineInstance) -> Tie:
    devices = vmi.spec.domain.devices
    if devices.host_devices or devices.gpus:
        return names.REASON_HOST_DEVICE_NOT_MIGRATABLE, "the guest uses a device of its node"
    if tied := _tied_card(vmi):
        return names.REASON_HOST_DEVICE_NOT_MIGRATABLE, f"its network card {tied} is the device of one claim"
    if devices.filesystems:
        return names.REASON_VIRTIOFS_NOT_MIGRATABLE, "the guest shares a filesystem with its Pod"
    if held := reserving(vmi.spec):
        text = f"what the guest reserves of the disk {held[0]} is reserved for its node"
        return names.REASON_RESERVATION_NOT_MIGRATABLE, text
    return None


def _memory(vmi: VirtualMachineInstance) -> Tie:
    kind = protection(vmi.spec)
    reasons = {TDX: names.REASON_TDX_NOT_MIGRATABLE, PV: names.REASON_PV_NOT_MIGRATABLE}
    text = "the guest's memory is closed to its node, so nobody can copy it"
    return (reasons.get(kind, names.REASON_SEV_NOT_MIGRATABLE), text) if kind else None


def _processor(vmi: VirtualMachineInstance) -> Tie:
    domain = vmi.spec.domain
    if counter.relies(vmi) and (vmi.status.topology_hints is None or not vmi.status.topology_hints.tsc_frequency):
        return names.REASON_TSC_NOT_MIGRATABLE, "nobody knows how fast the counter runs that the guest relies on"
    if domain.cpu is not None and domain.cpu.model == "host-passthrough":
        return names.REASON_CPU_NOT_MIGRATABLE, "the guest sees its node's own processor"
    if sees_cells(vmi):
        return names.REASON_CPU_NOT_MIGRATABLE, "the guest sees in which memory cells of its node it is"
    passthrough = domain.features.hyperv_passthrough if domain.features is not None else None
    if passthrough is not None and passthrough.enabled is not False:
        return names.REASON_HYPERV_NOT_MIGRATABLE, "the guest has all of Hyper-V that its own node knows"
    return None


def _stored(vmi: VirtualMachineInstance) -> Tie:
    if keeps_tpm(vmi.spec):
        # libvirt moves it along with the memory, unless it knows that the claim is shared; then two TPMs write to it.
        return names.REASON_DISKS_NOT_MIGRATABLE, "what its TPM has stored cannot move with it yet"
    if keeps_variables(vmi.spec) and not _is_everywhere(vmi, names.STATUS_KEPT_STATE):
        text = "only one node at a time reaches the claim with what its firmware has stored"
        return names.REASON_DISKS_NOT_MIGRATABLE, text
    if tracks_blocks(vmi) and not _is_everywhere(vmi, names.STATUS_KEPT_STATE):
        text = "only one node at a time reaches the claim that says which blocks of its disks have changed"
        return names.REASON_DISKS_NOT_MIGRATABLE, text
    return None


def _disks(vmi: VirtualMachineInstance) -> Tie:
    if tied := _tied_disk(vmi):
        return names.REASON_DISKS_NOT_MIGRATABLE, f"only one node at a time reaches the disk {tied}"
    return None


def _tied_card(vmi: VirtualMachineInstance) -> str:
    """A card of a claim that its Pods share: another node has no second one. A template makes a claim for each Pod."""
    shared = {claim.name for claim in vmi.spec.resource_claims if claim.resource_claim_name}
    claims = {each.name: each.resource_claim for each in claimed_networks(vmi.spec)}
    return next((name for name, claim in claims.items() if claim is not None and claim.claim_name in shared), "")


def _tied_nic(vmi: VirtualMachineInstance, nic: Interface, plugins: Configured) -> str:
    """By what the table of bindings says; empty when it can move."""
    row = bindingplugins.row(nic, plugins)
    if row is not None and row.moves == MOVES_ELSEWHERE:
        on_pod_network = any(network.pod is not None for network in vmi.spec.networks if network.name == nic.name)
        allowed = names.ANNOTATION_POD_BRIDGE_MIGRATION in vmi.metadata.annotations
        tied = on_pod_network and not allowed
        return "a bridge on the Pod network gives the guest the Pod's own address" if tied else ""
    if row is not None and row.moves == STAYS:
        return f"the interface {nic.name} is tied to its node by {row.name}"
    if nic.binding is not None and not bindingplugins.moves(nic, plugins):
        return f"the network binding plugin {nic.binding.name} does not say how a machine moves"
    return ""


def _is_everywhere(vmi: VirtualMachineInstance, volume: str) -> bool:
    claims = (each.persistent_volume_claim_info for each in vmi.status.volume_status if each.name == volume)
    return any(claim is not None and names.ACCESS_ALL_NODES in claim.access_modes for claim in claims)


def _tied_disk(vmi: VirtualMachineInstance) -> str:
    """A volume that another node cannot have at the same time; empty when there is none."""
    copied = moving(vmi.status)
    claims = {status.name: status.persistent_volume_claim_info for status in vmi.status.volume_status}
    for volume in vmi.spec.volumes:
        claim = claims.get(volume.name) if volume.name not in copied else None
        if volume.host_disk is not None and not volume.host_disk.shared:
            return volume.name
        if claim is not None and volume.ephemeral is None and names.ACCESS_ALL_NODES not in claim.access_modes:
            return volume.name
    return ""


def method(vmi: VirtualMachineInstance) -> str:
    """Disks that live in the Pod travel with the guest; without any, memory is enough."""
    return METHOD_BLOCK if travel.copied(vmi) else METHOD_LIVE


def with_conditions(
    vmi: VirtualMachineInstance, status: VirtualMachineInstanceStatus, now: datetime, plugins: Configured = NO_PLUGINS
) -> VirtualMachineInstanceStatus:
    status = _condition(status, names.CONDITION_LIVE_MIGRATABLE, obstacle(vmi, plugins), now)
    status = _condition(status, names.CONDITION_STORAGE_LIVE_MIGRATABLE, storage_obstacle(vmi, plugins), now)
    return replace(status, migration_method=method(vmi))


def _condition(
    status: VirtualMachineInstanceStatus, kind: str, against: tuple[str, str] | None, now: datetime
) -> VirtualMachineInstanceStatus:
    if against is None:
        return with_condition(status, kind, names.TRUE, now=now)
    return with_condition(status, kind, names.FALSE, *against, now=now)
