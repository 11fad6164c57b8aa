"""DataVolume of the containerized data importer: a claim, and what is to be in it. Not ours; only its state is read."""

from __future__ import annotations

from typing import Any

from msgspec import field

from virt_core.apis.base import Struct
from virt_core.apis.meta import ObjectMeta


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
