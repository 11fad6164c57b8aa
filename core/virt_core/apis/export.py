"""VirtualMachineExport: lets a VM's disks be downloaded."""

from __future__ import annotations

from typing import Annotated

from msgspec import field

from virt_core.apis.base import REQUIRED, Struct
from virt_core.apis.meta import Condition, ObjectMeta, Time
from virt_core.apis.podparts import TypedLocalObjectReference


class VirtualMachineExportSpec(Struct):
    """What is exported."""

    #: A claim, a VM, a snapshot or a backup.
    source: Annotated[TypedLocalObjectReference, REQUIRED] = field(default_factory=TypedLocalObjectReference)
    token_secret_ref: str | None = None  #: The Secret with the token that a download must show.
    ttl_duration: str | None = None  #: How long it lasts; 2h by default.


class VirtualMachineExportVolumeFormat(Struct):
    """A way to download a volume."""

    format: str  #: raw, gzip, dir or tar.gz.
    url: str  #: Where.


class VirtualMachineExportVolume(Struct):
    """A volume to download."""

    name: str  #: Its name.
    formats: list[VirtualMachineExportVolumeFormat] = []  #: The ways.


class VirtualMachineExportManifest(Struct):
    """A manifest to download."""

    type: str  #: all, auth-header-secret or oci.
    url: str  #: Where.


class VirtualMachineExportBackupEndpoint(Struct):
    """A way to download a backup."""

    endpoint: str  #: What it serves.
    url: str  #: Where.


class VirtualMachineExportBackup(Struct):
    """A backup to download."""

    name: str  #: The volume.
    endpoints: list[VirtualMachineExportBackupEndpoint] = []  #: The ways.


class VirtualMachineExportLink(Struct):
    """Where downloads are."""

    cert: str  #: The certificate to trust.
    volumes: list[VirtualMachineExportVolume] = []  #: The volumes.
    backups: list[VirtualMachineExportBackup] = []  #: The backups.
    manifests: list[VirtualMachineExportManifest] = []  #: The manifests.


class VirtualMachineExportLinks(Struct):
    """Where downloads are, from inside and outside."""

    internal: VirtualMachineExportLink | None = None  #: Within the cluster.
    external: VirtualMachineExportLink | None = None  #: From outside.


class VirtualMachineExportStatus(Struct):
    """What became of an export."""

    phase: str = ""  #: Pending, Ready, Terminated or Skipped.
    links: VirtualMachineExportLinks | None = None  #: Where downloads are.
    token_secret_ref: str | None = None  #: The Secret in use.
    ttl_expiration_time: Time | None = None  #: When it ends.
    service_name: str = ""  #: The Service in front of it.
    virtual_machine_name: str | None = None  #: The VM.
    conditions: list[Condition] = []  #: Ready, PVCReady, VolumesCreated and OCIReady.


class VirtualMachineExport(Struct):
    """Lets a VM's disks be downloaded."""

    api_version: str = "export.kubevirt.io/v1"
    kind: str = "VirtualMachineExport"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    #: What is exported.
    spec: Annotated[VirtualMachineExportSpec, REQUIRED] = field(default_factory=VirtualMachineExportSpec)
    status: VirtualMachineExportStatus = field(default_factory=VirtualMachineExportStatus)  #: What became of it.
