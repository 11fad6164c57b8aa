"""Where an export is found. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from virt_controller.export.model import Exported
from virt_core.apis import exportplan
from virt_core.apis.export import (
    VirtualMachineExportLink,
    VirtualMachineExportManifest,
    VirtualMachineExportVolume,
    VirtualMachineExportVolumeFormat,
)

_DISK = ((exportplan.FORMAT_RAW, exportplan.RAW), (exportplan.FORMAT_GZIP, exportplan.GZIP))
_FILES = ((exportplan.FORMAT_DIR, exportplan.LISTING), (exportplan.FORMAT_ARCHIVE, exportplan.ARCHIVE))


@dataclass(frozen=True, slots=True)
class Way:
    """How the exporter is reached from one side."""

    whose: str  #: internal or external.
    base: str
    certificate: str


def internal_way(namespace: str, export: str, certificate: str) -> Way:
    return Way(exportplan.INTERNAL, f"https://{exportplan.service_name(export)}.{namespace}.svc", certificate)


def url_of(way: Way, volume: str, file: str) -> str:
    return f"{way.base}/volumes/{volume}/{file}"


def link(way: Way, volumes: Iterable[Exported], *, with_vm: bool) -> VirtualMachineExportLink:
    return VirtualMachineExportLink(
        cert=way.certificate,
        volumes=[_volume(way, each) for each in volumes],
        manifests=_manifests(way, with_vm=with_vm),
    )


def _volume(way: Way, each: Exported) -> VirtualMachineExportVolume:
    formats = [
        VirtualMachineExportVolumeFormat(format=name, url=url_of(way, each.name, file))
        for name, file in (_DISK if each.disk else _FILES)
    ]
    return VirtualMachineExportVolume(name=each.name, formats=formats)


def _manifests(way: Way, *, with_vm: bool) -> list[VirtualMachineExportManifest]:
    base = f"{way.base}/{way.whose}/manifests"
    found = [VirtualMachineExportManifest(type=exportplan.TYPE_ALL, url=f"{base}/{exportplan.MANIFEST_ALL}")]
    secret = f"{base}/{exportplan.MANIFEST_SECRET}"
    found.append(VirtualMachineExportManifest(type=exportplan.TYPE_SECRET, url=secret))
    return found if with_vm else []
