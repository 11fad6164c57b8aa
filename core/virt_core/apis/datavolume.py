"""What is read of the containerized data importer: DataVolumes (a claim, and what is to be in it), and which claims a
storage class can give. Not ours."""

from __future__ import annotations

from typing import Any

from msgspec import field

from virt_core.apis import names
from virt_core.apis.base import Struct
from virt_core.apis.meta import ObjectMeta

#: Phases
DONE = "Succeeded"
FAILED = "Failed"
FIRST_CONSUMER = names.BINDING_FIRST_CONSUMER
#: Filled when the first consumer comes.
WAITING = frozenset({FIRST_CONSUMER, "PendingPopulation"})


class DataVolumeStatus(Struct):
    """How far the filling is."""

    claim_name: str = ""  #: The claim that is filled; it has the DataVolume's name.
    phase: str = ""  #: Pending, ImportInProgress, WaitForFirstConsumer, Succeeded, Failed and many more.


class DataVolume(Struct):
    """A claim that is filled from somewhere."""

    api_version: str = "cdi.kubevirt.io/v1beta1"
    kind: str = "DataVolume"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: dict[str, Any] = {}  #: The importer's own affair.
    status: DataVolumeStatus = field(default_factory=DataVolumeStatus)


class ClaimPropertySet(Struct):
    """A kind of claim that a storage class can give."""

    access_modes: list[str] = []  #: Its access modes.
    volume_mode: str | None = None  #: Block or Filesystem.


class StorageProfileStatus(Struct):
    """What the importer knows of a class."""

    claim_property_sets: list[ClaimPropertySet] = []  #: The best first.


class StorageProfile(Struct):
    """A storage class as the importer knows it; has the name of the class."""

    api_version: str = "cdi.kubevirt.io/v1beta1"
    kind: str = "StorageProfile"
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    status: StorageProfileStatus = field(default_factory=StorageProfileStatus)
