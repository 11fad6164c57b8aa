"""ConfigMaps, Secrets, fields of the VMI, a service account's token, Windows answer files: small images with files."""

from __future__ import annotations

import os
from pathlib import Path

from virt_core.apis.volumes import Volume
from virt_launcher.disks.cloud_init import IsoPlan
from virt_launcher.errors import InvalidVMIError
from virt_launcher.settings import Paths

_LABEL = "cfgdata"
_SYSPREP_LABEL = "unattendCD"
_ANSWERS = frozenset({"autounattend.xml", "unattend.xml"})
_MAX_LABEL = 32
#: Kubernetes takes a megabyte in a Secret or ConfigMap; a projected volume is made of several.
_MAX_BYTES = 4 << 20
_MAX_FILES = 4096


def plan(volume: Volume, where: str, paths: Paths) -> IsoPlan | None:
    """None: the volume is of another kind. Raises InvalidVMIError."""
    mounted = paths.file_volume(volume.name)
    if volume.config_map is not None:
        return _plan(mounted, volume.config_map.volume_label, f"{where}.configMap")
    if volume.secret is not None:
        return _plan(mounted, volume.secret.volume_label, f"{where}.secret")
    if volume.downward_api is not None:
        return _plan(mounted, volume.downward_api.volume_label, f"{where}.downwardAPI")
    if volume.service_account is not None:
        return _plan(paths.service_account, "", f"{where}.serviceAccount")
    if volume.sysprep is not None:
        return _sysprep(mounted, f"{where}.sysprep")
    return None


def _plan(mounted: Path, label: str, field: str) -> IsoPlan:
    if len(label) > _MAX_LABEL or not label.isascii() or not label.isprintable():
        raise InvalidVMIError(f"{field}.volumeLabel", f"must be at most {_MAX_LABEL} printable ASCII characters")
    return IsoPlan(label or _LABEL, collect(mounted, field), field)


def _sysprep(mounted: Path, field: str) -> IsoPlan:
    files = collect(mounted, field)
    if not any(name.lower() in _ANSWERS for name in files):
        raise InvalidVMIError(field, f"none of the files is called {' or '.join(sorted(_ANSWERS))}")
    return IsoPlan(_SYSPREP_LABEL, files, field)


def collect(mounted: Path, field: str) -> dict[str, bytes]:
    """The files of a volume that the node writes. Its names are links through `..data` to the newest state; all that
    is read is read from that one state."""
    if not mounted.is_dir():
        raise InvalidVMIError(field, f"it is not mounted at {mounted}")
    root = mounted / "..data"
    root = Path(os.path.realpath(root)) if root.exists() else mounted
    files: dict[str, bytes] = {}
    left = _MAX_BYTES
    for folder, folders, found in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith(".."))
        for name in sorted(found):
            path = Path(folder) / name
            with open(path, "rb") as file:
                content = file.read(left + 1)
            left -= len(content)
            files[str(path.relative_to(root))] = content
            if left < 0 or len(files) > _MAX_FILES:
                raise InvalidVMIError(
                    field, f"its files have more than {_MAX_BYTES} bytes in all, or are more than {_MAX_FILES}"
                )
    return files
