"""What virt-controller asks an exporter to serve, and where the two, virt-api and virtctl find each other.

The plan is the environment variable `PLAN`, one JSON document. The certificate, its key and the manifests are files of
a Secret that lives as long as the Pod; the token is a file of the Secret that the export names.
"""

from __future__ import annotations

import re
from typing import Any

from virt_core.apis import names
from virt_core.apis.base import Struct

PROGRAM = names.APP_EXPORTER
PLAN = "VIRTPOD_EXPORT"
PORT, SERVICE_PORT = 8443, 443
PORT_NAME = "export"
TOKEN_HEADER = "x-kubevirt-export-token"  # noqa: S105 - a name
PATH_READY = "/exportready"
#: Below /volumes/NAME/
RAW, GZIP, ARCHIVE, LISTING, SUM = names.FILE_DISK, "disk.img.gz", "disk.tar.gz", "dir/", "disk.img.sha256"
#: Formats, as links call them.
FORMAT_RAW, FORMAT_GZIP, FORMAT_DIR, FORMAT_ARCHIVE = "raw", "gzip", "dir", "tar.gz"
#: A gzip download consists of members of so much of the disk each; `?from=` a multiple of it goes on with the next one.
PIECE = 16 << 20
QUERY_FROM = "from"
SIZE_HEADER = "X-Virtpod-Disk-Size"
#: Manifests: whose links are in them, and what they are of.
INTERNAL, EXTERNAL = "internal", "external"
MANIFEST_ALL, MANIFEST_SECRET = "all", "secret"
TYPE_ALL, TYPE_SECRET = "all", "auth-header-secret"
#: Where things are in the Pod.
TLS_DIRECTORY, TOKEN_DIRECTORY = "/var/run/virtpod/export", "/var/run/virtpod/token"
MANIFESTS_FILE, TOKEN_KEY = "manifests.json", "token"
DIRECTORIES, DEVICES = "/export-volumes", "/dev/export-volumes"

DEFAULT_TTL = "2h"
#: A token that opens something for ever is one too many.
MAX_TTL_S = 366 * 24 * 3600.0
_DURATION = re.compile(r"(\d{1,9}(\.\d{1,9})?(ms|[smh]))+")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

_LIMIT, _HASH = 63, 8


class ExportVolume(Struct):
    """One claim."""

    name: str  #: As links call it.
    path: str  #: A directory, or a device.
    block: bool = False
    #: What is in it is a disk: the device, or `disk.img` in the directory. Else it is files.
    disk: bool = True


class ExportPlan(Struct):
    """What is served, until when."""

    name: str
    namespace: str
    volumes: list[ExportVolume] = []
    #: RFC 3339; the exporter ends then.
    deadline: str = ""


class Manifests(Struct):
    """The documents to make the machine anew, with links as they are seen from inside and from outside."""

    internal: list[dict[str, Any]] = []
    external: list[dict[str, Any]] = []


def fnv1a(text: str) -> str:
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{value:08x}"


def short_name(base: str, suffix: str) -> str:
    """`base-suffix` within 63 characters: what is cut off is replaced by its hash."""
    whole = f"{base}-{suffix}"
    if len(whole) <= _LIMIT:
        return whole
    room = _LIMIT - _HASH - 2 - len(suffix)
    if room > 0:
        return f"{base[:room]}-{fnv1a(base)}-{suffix}"
    return f"{whole[: _LIMIT - _HASH - 1]}-{fnv1a(whole)}"


def pod_name(export: str) -> str:
    return short_name("virt-export", export)


def service_name(export: str) -> str:
    return short_name("virt-export", export.replace(".", "-"))


def header_secret_name(export: str) -> str:
    """The Secret with the header that a download needs, as the manifests call it."""
    return f"header-secret-{export}"


def outside_path(namespace: str, export: str) -> str:
    """Where virt-api serves it to those who have the token."""
    return f"/api/export.kubevirt.io/v1/namespaces/{namespace}/virtualmachineexports/{export}"


def ca_name(export: str) -> str:
    return f"export-ca-cm-{export}"


def seconds_of(duration: str) -> float:
    """Of a duration as Kubernetes writes it: `2h`, `1h30m`, `90s`, `1.5h`. Raises ValueError."""
    if not _DURATION.fullmatch(duration):
        raise ValueError(f"{duration!r} is not a duration such as 90s, 30m, 2h or 1h30m")
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smh])", duration)
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)
