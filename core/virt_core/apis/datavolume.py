"""DataVolumes: a claim, and what is to be in it. The kind is that of the containerized data importer (CDI).

Where a cluster has CDI, it acts on them and we only read. Elsewhere the definition is ours, says so by a label, and our
own importer acts on them (docs/decisions/0047).
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from virt_core.apis import names
from virt_core.apis.base import Struct
from virt_core.apis.meta import Condition, ObjectMeta
from virt_core.apis.quantity import Quantity

#: Phases
PENDING = "Pending"
DONE = "Succeeded"
FAILED = "Failed"
FIRST_CONSUMER = names.BINDING_FIRST_CONSUMER
IMPORT_SCHEDULED, IMPORT_IN_PROGRESS = "ImportScheduled", "ImportInProgress"
CLONE_SCHEDULED, CLONE_IN_PROGRESS = "CloneScheduled", "CloneInProgress"
UPLOAD_SCHEDULED, UPLOAD_READY = "UploadScheduled", "UploadReady"
#: Filled when the first consumer comes.
WAITING = frozenset({FIRST_CONSUMER, "PendingPopulation"})

#: Conditions
BOUND, RUNNING, READY = "Bound", "Running", "Ready"

#: How a cluster's definition of DataVolumes is called, and whose it is.
DEFINITION = "datavolumes.cdi.kubevirt.io"
LABEL_IMPORTER = "virtpod.io/importer"
#: CDI's operator marks what it has made or taken over by one of these.
CDI_LABELS = ("operator.cdi.kubevirt.io", "cdi.kubevirt.io")

_KEY = "cdi.kubevirt.io/"
KEY_ADOPTION = f"{_KEY}allowClaimAdoption"
KEY_POPULATED_FOR = f"{_KEY}storage.populatedFor"
KEY_PREPOPULATED = f"{_KEY}storage.prePopulated"
KEY_CONTENT_TYPE = f"{_KEY}storage.contentType"
KEY_BIND_NOW = f"{_KEY}storage.bind.immediate.requested"
KEY_UPLOAD_TARGET = f"{_KEY}storage.upload.target"
KEY_POD_PHASE = f"{_KEY}storage.pod.phase"
KEY_POD_READY = f"{_KEY}storage.pod.ready"


class DataVolumeStatus(Struct):
    """How far the filling is."""

    claim_name: str = ""  #: The claim that is filled; it has the DataVolume's name.
    phase: str = ""  #: Pending, ImportInProgress, WaitForFirstConsumer, Succeeded, Failed and many more.
    progress: str = ""  #: As 12.34%, or N/A where nobody can know.
    restart_count: int = 0  #: How often the importer was started anew.
    conditions: list[Condition] = []  #: Bound, Running and Ready.


class DataVolume(Struct):
    """A claim that is filled from somewhere."""

    api_version: str = "cdi.kubevirt.io/v1beta1"
    kind: str = "DataVolume"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: dict[str, Any] = {}  #: The importer's own affair; read as DataVolumeSpec where the importer is ours.
    status: DataVolumeStatus = field(default_factory=DataVolumeStatus)


class HttpSource(Struct):
    """A file of an HTTP server."""

    url: str  #: Its URL, http or https.
    secret_ref: str = ""  #: A Secret with accessKeyId and secretKey, for basic authentication.
    cert_config_map: str = ""  #: A ConfigMap with certificates that are trusted beside the usual ones.
    extra_headers: list[str] = []  #: Headers that go with each request, as "Name: value".
    secret_extra_headers: list[str] = []  #: Secrets whose values are such headers.
    checksum: str = ""  #: Of the file, as sha256:…, sha512:…, sha1:… or md5:….


class RegistrySource(Struct):
    """A disk in the directory /disk of a container image."""

    url: str | None = None  #: As docker://host/name:tag.
    pull_method: str | None = None  #: pod: the importer pulls; node: the node pulls, as it does for Pods.
    secret_ref: str | None = None  #: A Secret with accessKeyId and secretKey.
    cert_config_map: str | None = None  #: A ConfigMap with certificates that are trusted beside the usual ones.


class ClaimSource(Struct):
    """Another claim, which is copied."""

    name: str  #: Its name.
    namespace: str = ""  #: Its namespace, which must be that of the DataVolume.


class UploadSource(Struct):
    """Somebody sends the disk."""


class BlankSource(Struct):
    """An empty disk."""


class DataVolumeSource(Struct):
    """Where the disk comes from. Exactly one."""

    http: HttpSource | None = None  #: From an HTTP server.
    registry: RegistrySource | None = None  #: From an image registry.
    pvc: ClaimSource | None = None  #: From another claim.
    upload: UploadSource | None = None  #: From whoever sends it.
    blank: BlankSource | None = None  #: From nowhere.


class ClaimResources(Struct):
    """The size of a claim."""

    requests: dict[str, Quantity] = {}  #: storage: how much.
    limits: dict[str, Quantity] = {}  #: storage: at most how much.


class ClaimSpec(Struct):
    """What the claim is to be like."""

    access_modes: list[str] = []  #: How it may be used.
    volume_mode: str | None = None  #: Filesystem or Block.
    resources: ClaimResources | None = None  #: Its size.
    storage_class_name: str | None = None  #: Its class; absent: the default one.
    volume_name: str = ""  #: A volume that is to be used.


class DataVolumeSpec(Struct):
    """What is to be in which claim."""

    source: DataVolumeSource | None = None  #: Where it comes from.
    pvc: ClaimSpec | None = None  #: The claim as it is to be made.
    storage: ClaimSpec | None = None  #: The claim for a disk of this size: what a file system takes is added.
    content_type: str = ""  #: kubevirt.
    priority_class_name: str = ""  #: Of the Pod that fills the claim.
    preallocation: bool | None = None  #: Whether all blocks of the disk are there from the start.


class ClaimPropertySet(Struct):
    """A kind of claim that a storage class can give."""

    access_modes: list[str] = []  #: Its access modes.
    volume_mode: str | None = None  #: Block or Filesystem.


class StorageProfileStatus(Struct):
    """What the importer knows of a class."""

    claim_property_sets: list[ClaimPropertySet] = []  #: The best first.
    snapshot_class: str | None = None  #: The VolumeSnapshotClass for its claims.


class StorageProfile(Struct):
    """A storage class as the importer knows it; has the name of the class."""

    api_version: str = "cdi.kubevirt.io/v1beta1"
    kind: str = "StorageProfile"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    status: StorageProfileStatus = field(default_factory=StorageProfileStatus)
