"""What virt-controller asks an importer to do, and what the importer leaves behind: one JSON document each way.

The plan is the environment variable `PLAN`. The report is the container's termination message. While it works, the
importer tells how far it is at `GET /progress` on `PORT`, as a `Progress`.
"""

from __future__ import annotations

from virt_core.apis import names
from virt_core.apis.base import Struct

PROGRAM = names.APP_IMPORTER
PLAN = "VIRTPOD_IMPORT"
PORT = 8185
PATH_PROGRESS = "/progress"
#: Of the Pod's loopback; the path is that of CDI's upload proxy.
UPLOAD_PORT = 8190
PATH_UPLOAD = "/v1beta1/upload"
#: Where the claim is, by its kind, and where what else the plan needs is mounted.
DIRECTORY, DEVICE = "/data", "/dev/virtpod-import"
SOURCE_DIRECTORY, SOURCE_DEVICE = "/source", "/dev/virtpod-source"
CREDENTIALS, CERTIFICATES, SECRET_HEADERS = (
    "/var/run/virtpod/credentials",
    "/var/run/virtpod/certificates",
    "/var/run/virtpod/headers",
)
#: Kinds of sources.
BLANK, HTTP, REGISTRY, IMAGE, UPLOAD, CLONE = "blank", "http", "registry", "image", "upload", "clone"
_MAX_NAME = 253
#: A termination message has 4096 bytes at most.
MAX_MESSAGE = 3000

#: Reasons of a report. What is not in `FINAL` may go better the next time.
DONE = "Completed"
REFUSED = "ImageRefused"
CHECKSUM = "ChecksumMismatch"
TOO_SMALL = "ClaimTooSmall"
NO_SPACE = "NoSpace"
NOT_FOUND = "SourceNotFound"
DENIED = "SourceDenied"
INVALID = "InvalidSource"
TROUBLE = "TransferFailed"
FINAL = frozenset({REFUSED, CHECKSUM, TOO_SMALL, NO_SPACE, NOT_FOUND, DENIED, INVALID})


def pod_name(volume: str) -> str:
    """Of the importer Pod of a DataVolume."""
    name = f"importer-{volume}"
    if len(name) <= _MAX_NAME:
        return name
    import hashlib  # An importer never comes here, and its start is short.

    return f"{name[: _MAX_NAME - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


class ImportPlan(Struct):
    """One claim, and what is to be in it."""

    source: str
    #: How large the disk is to be, in bytes: an empty one gets this size.
    size: int
    #: How large it may be: what the claim has, a file system's own share included. 0: as `size` says.
    room: int = 0
    #: The claim is a device.
    block: bool = False
    url: str = ""
    #: As `sha256:…`; of the bytes as they come, before they are unpacked.
    checksum: str = ""
    #: As `Name: value`.
    headers: list[str] = []
    #: Directories of `SECRET_HEADERS` with more of them.
    secret_headers: int = 0
    #: All blocks of the disk are to be there from the start.
    preallocate: bool = False
    #: The source of a clone is a device.
    source_block: bool = False


class Progress(Struct):
    """How far it is."""

    #: Of 100, or below 0 where nobody can know.
    percent: float = -1.0
    #: Bytes of the source that were taken.
    taken: int = 0


class ImportReport(Struct):
    """How it ended."""

    reason: str
    message: str = ""
    #: What the image was.
    format: str = ""
    virtual_size: int = 0
    #: The bytes of the source that were taken, and of those how many an earlier importer had taken.
    taken: int = 0
    resumed: int = 0
