"""The annotation with which a VMI asks for hook sidecars: containers that may change its machine before it starts."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

import msgspec

from virt_core.apis import names
from virt_core.apis.base import UNREADABLE, Struct, decode

#: The points at which a sidecar can be asked.
ON_DEFINE_DOMAIN = "OnDefineDomain"
PRE_CLOUD_INIT_ISO = "PreCloudInitIso"
SHUTDOWN = "Shutdown"
#: The newest first; a sidecar is spoken to in the first one that it knows.
VERSIONS = ("v1alpha3", "v1alpha2", "v1alpha1")
#: How the shim of our own finds what it runs at a point.
PROGRAMS = {ON_DEFINE_DOMAIN: "onDefineDomain", PRE_CLOUD_INIT_ISO: "preCloudInitIso"}
#: Each is asked one after the other before the machine starts.
MOST = 16
#: Directories of the launcher's image, and what is mounted into it.
_PROGRAMS = ("bin", "boot", "etc", "home", "lib", "lib32", "lib64", "libx32", "opt", "root", "sbin", "usr")
_SYSTEM = frozenset((*_PROGRAMS, "dev", "proc", "run", "sys", "tmp", "var"))
_OURS = (names.PATH_SHARE, names.PATH_LIBVIRT, "/var/run/kubernetes.io", "/var/run/secrets", "/var/run/virt")
_POLICIES = ("", "Always", "IfNotPresent", "Never")


class HookConfigMap(Struct, forbid_unknown_fields=True):
    """A script out of a ConfigMap, and where the sidecar finds it."""

    name: str
    key: str
    hook_path: str


class HookClaim(Struct, forbid_unknown_fields=True):
    """A claim of the sidecar, and where it finds it; and where the launcher does, if both are to use it."""

    name: str
    volume_path: str
    shared_compute_path: str = ""


class HookSidecar(Struct, forbid_unknown_fields=True):
    """A container beside the launcher's. Without an image it is our own shim, which runs the script of a ConfigMap."""

    image: str = ""
    image_pull_policy: str = ""
    command: list[str] = []
    args: list[str] = []
    config_map: HookConfigMap | None = None
    pvc: HookClaim | None = None
    downward_api: str = msgspec.field(name="downwardAPI", default="")  #: Not built.


def sidecars(annotations: Mapping[str, str]) -> list[HookSidecar]:
    """Raises ValueError, whose text goes on from the annotation's name."""
    text = annotations.get(names.ANNOTATION_HOOK_SIDECARS)
    if text is None:
        return []
    try:
        found: list[HookSidecar] = decode(text, list[HookSidecar])
    except UNREADABLE as error:
        raise ValueError(f"must be a JSON list of sidecars: {error}") from error
    for fault in _faults(found):
        raise ValueError(fault)
    return found


def fault_of(annotations: Mapping[str, str]) -> str | None:
    try:
        sidecars(annotations)
    except ValueError as error:
        return str(error)
    return None


def _faults(found: list[HookSidecar]) -> Iterator[str]:
    if len(found) > MOST:
        yield f"has {len(found)} sidecars; at most {MOST} are allowed"
    for index, sidecar in enumerate(found):
        for fault in _faults_of(sidecar):
            yield f"[{index}]{fault}"


def _faults_of_claim(claim: HookClaim) -> Iterator[str]:
    if not claim.name:
        yield ".pvc.name: must name a claim"
    if not _is_plain(claim.volume_path) or _touches(claim.volume_path, names.PATH_HOOKS):
        yield f".pvc.volumePath: must be a plain, absolute path beside {names.PATH_HOOKS}"
    shared = claim.shared_compute_path
    if shared and (not _is_plain(shared) or _is_ours(shared)):
        yield f".pvc.sharedComputePath: must be a plain, absolute path at which the launcher has nothing: {shared!r}"


def _is_ours(path: str) -> bool:
    """Something there would take the place of the launcher's programs, devices or sockets."""
    return path.startswith(_OURS) if path.startswith("/var/run/") else path.split("/")[1] in _SYSTEM


def _is_plain(path: str) -> bool:
    return path.startswith("/") and path != "/" and posixpath.normpath(path) == path and not path.startswith("//")


def _touches(path: str, other: str) -> bool:
    """One is in the other."""
    return posixpath.commonpath((path, other)) in (path, other)


def _faults_of(sidecar: HookSidecar) -> Iterator[str]:
    if sidecar.pvc is not None:
        yield from _faults_of_claim(sidecar.pvc)
    if sidecar.downward_api:
        yield ".downwardAPI: a hook sidecar with device information is not built yet"
    if sidecar.image_pull_policy not in _POLICIES:
        yield f".imagePullPolicy: must be one of {', '.join(_POLICIES[1:])}"
    script = sidecar.config_map
    if script is None:
        if not sidecar.image:
            yield " must have an image, or a configMap with a script for our own"
        return
    path = script.hook_path
    if not script.name or not script.key or "/" in script.key:
        yield ".configMap: must name a ConfigMap and one of its keys"
    if not _is_plain(path):
        yield ".configMap.hookPath: must be the plain, absolute path of a file"
    if not sidecar.image and posixpath.basename(path) not in PROGRAMS.values():
        yield f".configMap.hookPath: without an image its last part must be {' or '.join(PROGRAMS.values())}"
