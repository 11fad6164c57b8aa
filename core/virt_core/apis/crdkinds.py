"""What the definition of each kind says beyond its schema: versions, short names, columns, subresources."""

from __future__ import annotations

from dataclasses import dataclass

from virt_core.apis import names


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; a wide one shows only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a kind. All versions share one schema. A warning makes it a deprecated one."""

    name: str
    storage: bool = False
    warning: str = ""


@dataclass(frozen=True, slots=True)
class CrdKind:
    """A kind; its group and scope are in the registry."""

    kind: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...] = ()
    versions: tuple[Version, ...] = ()
    status_subresource: bool = True
    scale_subresource: bool = False
    in_all: bool = True


def _condition(type_: str) -> str:
    return f".status.conditions[?(@.type=='{type_}')].status"


def _source(*rest: Column) -> tuple[Column, ...]:
    return (Column("SourceKind", ".spec.source.kind"), Column("SourceName", ".spec.source.name"), *rest)


_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_PHASE = Column("Phase", ".status.phase")
_REPLICAS = (
    Column("Desired", ".spec.replicas", "integer"),
    Column("Current", ".status.replicas", "integer"),
    Column("Ready", ".status.readyReplicas", "integer"),
    _AGE,
)
_SNAPSHOT = (
    Column("ReadyToUse", ".status.readyToUse", "boolean"),
    Column("CreationTime", ".status.creationTime", "date"),
    Column("Error", ".status.error.message"),
)

_CORE = (
    Version("v1", storage=True),
    Version("v1alpha3", warning="kubevirt.io/v1alpha3 is deprecated, use kubevirt.io/v1"),
)
_PRESET_WARNING = "VirtualMachineInstancePresets are deprecated and will go in v2; use instance types and preferences"
_PRESET = (Version("v1", warning=_PRESET_WARNING), Version("v1alpha3", storage=True, warning=_PRESET_WARNING))
_BETA = (Version("v1alpha1"), Version("v1beta1", storage=True))
_ONLY_BETA = (Version("v1beta1", storage=True),)
_ALPHA = (Version("v1alpha1", storage=True),)
_EXPORT = (
    Version("v1beta1", warning="export.kubevirt.io/v1beta1 is deprecated, use export.kubevirt.io/v1"),
    Version("v1", storage=True),
)


def _plain(kind: str, short_names: tuple[str, ...], *, in_all: bool) -> CrdKind:
    """An instance type or a preference: nothing but a spec."""
    return CrdKind(kind, short_names, versions=_ONLY_BETA, status_subresource=False, in_all=in_all)


KINDS: tuple[CrdKind, ...] = (
    CrdKind(
        "VirtualMachine",
        ("vm", "vms"),
        (_AGE, Column("Status", ".status.printableStatus"), Column("Ready", _condition("Ready"))),
        _CORE,
    ),
    CrdKind(
        "VirtualMachineInstance",
        ("vmi", "vmis"),
        (
            _AGE,
            _PHASE,
            Column("IP", ".status.interfaces[0].ipAddress"),
            Column("NodeName", ".status.nodeName"),
            Column("Ready", _condition("Ready")),
            Column("Live-Migratable", _condition(names.CONDITION_LIVE_MIGRATABLE), wide=True),
            Column("Paused", _condition("Paused"), wide=True),
        ),
        _CORE,
        # Status and metadata of a VMI are written together, in one patch.
        status_subresource=False,
    ),
    CrdKind("VirtualMachineInstanceMigration", ("vmim", "vmims"), (_PHASE, Column("VMI", ".spec.vmiName")), _CORE),
    CrdKind("VirtualMachineInstanceReplicaSet", ("vmirs", "vmirss"), _REPLICAS, _CORE, scale_subresource=True),
    CrdKind("VirtualMachineInstancePreset", ("vmipreset", "vmipresets"), (), _PRESET, status_subresource=False),
    CrdKind("KubeVirt", ("kv", "kvs"), (_AGE, _PHASE), _CORE),
    CrdKind("VirtualMachinePool", ("vmpool", "vmpools"), _REPLICAS, _BETA, scale_subresource=True),
    CrdKind("VirtualMachineSnapshot", ("vmsnapshot", "vmsnapshots"), _source(_PHASE, *_SNAPSHOT), _BETA),
    CrdKind("VirtualMachineSnapshotContent", ("vmsnapshotcontent", "vmsnapshotcontents"), _SNAPSHOT, _BETA),
    CrdKind(
        "VirtualMachineRestore",
        ("vmrestore", "vmrestores"),
        (
            Column("TargetKind", ".spec.target.kind"),
            Column("TargetName", ".spec.target.name"),
            Column("Complete", ".status.complete", "boolean"),
            Column("RestoreTime", ".status.restoreTime", "date"),
        ),
        _BETA,
    ),
    CrdKind("VirtualMachineExport", ("vmexport", "vmexports"), _source(_PHASE), _EXPORT),
    CrdKind(
        "VirtualMachineClone",
        ("vmclone", "vmclones"),
        (
            _PHASE,
            Column("SourceVirtualMachine", ".spec.source.name"),
            Column("TargetVirtualMachine", ".spec.target.name"),
        ),
        _BETA,
    ),
    CrdKind(
        "VirtualMachineBackup",
        ("vmbackup", "vmbackups"),
        _source(Column("Type", ".status.type"), Column("CheckpointName", ".status.checkpointName")),
        _ALPHA,
    ),
    CrdKind(
        "VirtualMachineBackupTracker",
        ("vmbackuptracker", "vmbackuptrackers"),
        _source(
            Column("LatestCheckpoint", ".status.latestCheckpoint.name"),
            Column("CheckpointTime", ".status.latestCheckpoint.creationTime", "date"),
        ),
        _ALPHA,
    ),
    _plain("VirtualMachineInstancetype", ("vminstancetype", "vminstancetypes", "vmf", "vmfs"), in_all=True),
    _plain(
        "VirtualMachineClusterInstancetype",
        ("vmclusterinstancetype", "vmclusterinstancetypes", "vmcf", "vmcfs"),
        in_all=False,
    ),
    _plain("VirtualMachinePreference", ("vmpref", "vmprefs", "vmp", "vmps"), in_all=True),
    _plain("VirtualMachineClusterPreference", ("vmcp", "vmcps"), in_all=False),
    CrdKind("MigrationPolicy", (), (), _ALPHA, in_all=False),
)
