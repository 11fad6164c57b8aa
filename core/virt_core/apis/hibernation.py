"""The saved state of a machine (its memory and devices): what is kept of it, and which machines can have one. Pure."""

from __future__ import annotations

import hashlib

from msgspec import field

from virt_core.apis import names
from virt_core.apis.base import UNREADABLE, Struct, decode, encode
from virt_core.apis.keptstate import keeps_tpm, tracks_blocks
from virt_core.apis.meta import Time
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.apis.volumes import Volume, is_hotplug

REQUESTED = "Requested"
SAVING = "Saving"
SAVED = "Saved"
RESUMING = "Resuming"
RESUMED = "Resumed"
FAILED = "Failed"
DISCARDED = "Discarded"
#: In these a state is there that the next start goes on from.
KEPT = frozenset({SAVED, RESUMING})
#: In these one is being made.
UNDER_WAY = frozenset({REQUESTED, SAVING})

#: Volumes whose bytes are the same in the next Pod: claims, and what is made anew from the VMI itself.
_LASTING = ("persistent_volume_claim", "data_volume", "memory_dump")
_MADE_ANEW = ("cloud_init_no_cloud", "cloud_init_config_drive", "sysprep")


class VirtualMachineHibernation(Struct):
    """The saved state of a VM's memory and devices, and how far it is."""

    phase: str = ""  #: Requested, Saving, Saved, Resuming, Resumed, Failed or Discarded.
    claim_name: str = ""  #: The claim that holds it.
    file_name: str = ""  #: The file.
    vmi_uid: str = field(default="", name="vmiUID")  #: The VMI whose state it is.
    owned: bool = False  #: Whether the claim was made for it and goes with it.
    copied: bool = False  #: Whether it came from a snapshot, with disks that are copies.
    start_timestamp: Time | None = None  #: When it was asked for.
    end_timestamp: Time | None = None  #: When it was whole.
    message: str = ""  #: What went wrong.
    spec_digest: str = ""  #: Of the parts of the spec that must stay as they are.
    machine_type: str = ""  #: The machine type that it ran as.
    mac_addresses: dict[str, str] = {}  #: By the interface.
    claims: dict[str, str] = {}  #: UIDs of the claims of its disks, by the volume.


class Resumption(Struct):
    """What a launcher goes on from; on the VMI, as JSON."""

    claim: str
    file: str
    copied: bool = False


def resumption(vmi: VirtualMachineInstance) -> Resumption | None:
    """Raises ValueError."""
    text = vmi.metadata.annotations.get(names.ANNOTATION_RESUME_FROM)
    if not text:
        return None
    try:
        found = decode(text, Resumption)
    except UNREADABLE as error:
        raise ValueError(f"annotation {names.ANNOTATION_RESUME_FROM}: {error}") from error
    if not found.claim or not is_state_file(found.file):
        raise ValueError(f"annotation {names.ANNOTATION_RESUME_FROM} names no claim, or no file of a saved state")
    return found


def is_state_file(name: str) -> bool:
    return name.endswith(names.MACHINE_STATE_SUFFIX) and "/" not in name and "\0" not in name


def digest(spec: VirtualMachineInstanceSpec) -> str:
    """Of what the saved state depends on. Where a machine runs, its probes and its labels may change."""
    volumes = [volume for volume in spec.volumes if volume.memory_dump is None]
    parts = [spec.domain, volumes, spec.networks, spec.architecture]
    return hashlib.sha256(encode(parts)).hexdigest()[:32]


def obstacle_now(vmi: VirtualMachineInstance) -> str:
    """Why the state of this running machine cannot be saved; empty: it can."""
    if tracks_blocks(vmi):
        return (
            "status.changedBlockTracking: its disks are seen through layers that note changes, so nobody could tell"
            " whether they were written meanwhile"
        )
    if vmi.status.migrated_volumes:
        return "status.migratedVolumes: its volumes are on their way to other claims"
    return obstacle(vmi.spec)


def obstacle(spec: VirtualMachineInstanceSpec) -> str:
    """Why the state of such a machine cannot be saved, with the field's path; empty: it can."""
    devices = spec.domain.devices
    if spec.domain.launch_security is not None:
        return "spec.domain.launchSecurity: memory that is encrypted cannot be saved"
    probe = spec.liveness_probe
    if probe is not None and probe.guest_agent_ping is None:
        return "spec.livenessProbe: it would fail while the guest stands still, and end the machine"
    for name, found in (
        ("hostDevices", devices.host_devices),
        ("gpus", devices.gpus),
        ("filesystems", devices.filesystems),
    ):
        if found:
            return f"spec.domain.devices.{name}: what is outside of the machine cannot be saved with it"
    if devices.autoattach_vsock:
        return "spec.domain.devices.autoattachVSOCK: its connections cannot be saved"
    if devices.tpm is not None and devices.tpm.enabled is not False and not keeps_tpm(spec):
        return "spec.domain.devices.tpm.persistent: a TPM that forgets at the end cannot be saved"
    for interface in devices.interfaces:
        if interface.sriov is not None or interface.binding is not None:
            return f"spec.domain.devices.interfaces[{interface.name}]: only bridge and masquerade can be saved"
    return next((why for volume in spec.volumes if (why := _volume(spec, volume))), "")


def _volume(spec: VirtualMachineInstanceSpec, volume: Volume) -> str:
    path = f"spec.volumes[{volume.name}]"
    if volume.name == names.VOLUME_MACHINE_STATE:
        return f"{path}: this name is that of the saved state" if volume.memory_dump is None else ""
    if is_hotplug(volume) and volume.memory_dump is None:
        return f"{path}: it came while the machine ran; take it out, or make it a disk from the start"
    if any(getattr(volume, kind) is not None for kind in (*_LASTING, *_MADE_ANEW)):
        return ""
    if volume.container_disk is not None and _only_read(spec, volume.name):
        return ""
    return f"{path}: what the guest wrote to it ends with the Pod; only claims can be saved"


def _only_read(spec: VirtualMachineInstanceSpec, name: str) -> bool:
    disk = next((each for each in spec.domain.devices.disks if each.name == name), None)
    if disk is None:
        return False
    if disk.cdrom is not None:
        return disk.cdrom.read_only is not False
    return disk.disk is not None and bool(disk.disk.read_only)
