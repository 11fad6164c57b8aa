"""The documents that make an exported VM anew somewhere else: its disks are downloaded from the export. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from virt_controller.export.links import Way, url_of
from virt_controller.export.model import Exported
from virt_core.apis import exportplan, names
from virt_core.apis.base import to_plain
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine

#: What is the old object's own.
_LEFT_OUT = (
    "kubectl.kubernetes.io/last-applied-configuration",
    names.ANNOTATION_LATEST_API_VERSION,
    names.ANNOTATION_STORAGE_API_VERSION,
)
_STORAGE = "storage"


def documents(export: str, vm: VirtualMachine, volumes: Iterable[Exported], way: Way) -> list[dict[str, Any]]:
    """The VM's instance type is written out already."""
    disks = {each.name: each for each in volumes if each.disk}
    machine = _machine(vm)
    templates = machine["spec"].get("dataVolumeTemplates", [])
    made = set()
    for template in templates:
        name = template.get("metadata", {}).get("name", "")
        if name in disks:
            template["spec"] = _spec(export, disks[name], way)
            made.add(name)
    others = [_data_volume(export, each, way) for name, each in disks.items() if name not in made]
    return [_authority(export, way), machine, *others]


def _authority(export: str, way: Way) -> dict[str, Any]:
    metadata = {"name": exportplan.ca_name(export)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.pem": way.certificate}}


def _machine(vm: VirtualMachine) -> dict[str, Any]:
    """Its name, labels, annotations and spec; nothing that says which object it was."""
    plain = to_plain(vm)
    given = plain.get("metadata", {})
    metadata: dict[str, Any] = {"name": vm.metadata.name}
    if given.get("labels"):
        metadata["labels"] = given["labels"]
    if annotations := {key: value for key, value in given.get("annotations", {}).items() if key not in _LEFT_OUT}:
        metadata["annotations"] = annotations
    return {"apiVersion": vm.api_version, "kind": vm.kind, "metadata": metadata, "spec": plain["spec"]}


def _data_volume(export: str, each: Exported, way: Way) -> dict[str, Any]:
    """The claim that it makes has the name that the VM's volume asks for."""
    return {
        "apiVersion": "cdi.kubevirt.io/v1beta1",
        "kind": "DataVolume",
        "metadata": {"name": each.name},
        "spec": _spec(export, each, way),
    }


def _spec(export: str, each: Exported, way: Way) -> dict[str, Any]:
    source = {
        "url": url_of(way, each.name, exportplan.GZIP),
        "certConfigMap": exportplan.ca_name(export),
        "secretExtraHeaders": [exportplan.header_secret_name(export)],
    }
    return {"source": {"http": source}, "pvc": _claim(each.claim)}


def _claim(claim: PersistentVolumeClaim) -> dict[str, Any]:
    """Of the same size and kind; the storage class is that of where it goes."""
    asked = claim.spec.resources.requests if claim.spec.resources is not None else {}
    size = claim.status.capacity.get(_STORAGE) or asked.get(_STORAGE) or "1Gi"
    found: dict[str, Any] = {
        "accessModes": claim.spec.access_modes,
        "resources": {"requests": {_STORAGE: str(size)}},
    }
    if claim.spec.volume_mode:
        found["volumeMode"] = claim.spec.volume_mode
    return found
