"""The volumes of a Pod."""

from __future__ import annotations

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import LabelSelector, ObjectMeta
from virt_core.apis.podparts import (
    DownwardAPIVolumeFile,
    LocalObjectReference,
    PersistentVolumeClaimVolumeSource,
    TypedLocalObjectReference,
    TypedObjectReference,
)
from virt_core.apis.quantity import Quantity


class KeyToPath(Struct):
    """A key of a ConfigMap or Secret and the file that holds it."""

    key: str
    path: str
    mode: int | None = None


class EmptyDirVolumeSource(Struct):
    """A directory that lives as long as the Pod."""

    medium: str = ""
    size_limit: Quantity | None = None


class HostPathVolumeSource(Struct):
    """A path of the node."""

    path: str
    type: str | None = None


class ConfigMapVolumeSource(Struct):
    """The keys of a ConfigMap as files."""

    name: str = ""
    items: list[KeyToPath] = []
    default_mode: int | None = None
    optional: bool | None = None


class SecretVolumeSource(Struct):
    """The keys of a Secret as files."""

    secret_name: str = ""
    items: list[KeyToPath] = []
    default_mode: int | None = None
    optional: bool | None = None


class SecretProjection(Struct):
    """The keys of a Secret within a projected volume."""

    name: str = ""
    items: list[KeyToPath] = []
    optional: bool | None = None


class ConfigMapProjection(Struct):
    """The keys of a ConfigMap within a projected volume."""

    name: str = ""
    items: list[KeyToPath] = []
    optional: bool | None = None


class DownwardAPIProjection(Struct):
    """Fields of the Pod within a projected volume."""

    items: list[DownwardAPIVolumeFile] = []


class ServiceAccountTokenProjection(Struct):
    """A token of the Pod's service account, renewed by the node."""

    path: str
    audience: str = ""
    expiration_seconds: int | None = None


class VolumeProjection(Struct):
    """One source of a projected volume."""

    secret: SecretProjection | None = None
    config_map: ConfigMapProjection | None = None
    downward_api: DownwardAPIProjection | None = field(default=None, name="downwardAPI")
    service_account_token: ServiceAccountTokenProjection | None = None


class ProjectedVolumeSource(Struct):
    """Several sources in one directory."""

    sources: list[VolumeProjection] = []
    default_mode: int | None = None


class DownwardAPIVolumeSource(Struct):
    """Fields of the Pod as files."""

    items: list[DownwardAPIVolumeFile] = []
    default_mode: int | None = None


class ImageVolumeSource(Struct):
    """The root of an OCI image, read-only."""

    reference: str = ""
    pull_policy: str = ""


class VolumeResourceRequirements(Struct):
    """The size of a claim."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class PersistentVolumeClaimSpec(Struct):
    """What storage a claim asks for."""

    access_modes: list[str] = []
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: TypedLocalObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None


class PersistentVolumeClaimTemplate(Struct):
    """A claim that is made with the Pod."""

    spec: PersistentVolumeClaimSpec
    metadata: ObjectMeta | None = None


class EphemeralVolumeSource(Struct):
    """A claim that lives as long as the Pod."""

    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class CSIVolumeSource(Struct):
    """A volume that a CSI driver makes for the Pod."""

    driver: str
    read_only: bool | None = None
    fs_type: str | None = None
    volume_attributes: dict[str, str] = {}
    node_publish_secret_ref: LocalObjectReference | None = None


class Volume(Struct):
    """A volume of a Pod: a name and exactly one source."""

    name: str
    empty_dir: EmptyDirVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    projected: ProjectedVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = field(default=None, name="downwardAPI")
    image: ImageVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    csi: CSIVolumeSource | None = None
