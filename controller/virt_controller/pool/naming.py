"""Numbers of a pool's VMs, and the names that carry them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.domain import Firmware
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.pool import VirtualMachinePool
from virt_core.apis.registry import owner_reference
from virt_core.apis.vm import VirtualMachine, VirtualMachineSpec

_NUMBER = re.compile(r"-([0-9]+)$")


def number_of(name: str) -> int | None:
    match = _NUMBER.search(name)
    return int(match.group(1)) if match else None


def free_numbers(pool: str, taken: Iterable[str]) -> Iterator[int]:
    """The lowest numbers that no VM has, whoever made it."""
    used, number = set(taken), 0
    while True:
        if f"{pool}-{number}" not in used:
            yield number
        number += 1


def former_pool(vm: VirtualMachine) -> str:
    """The key of the pool that the VM was made for, by its name: it may have no owner any more."""
    return f"{vm.metadata.namespace}/{_NUMBER.sub('', vm.metadata.name)}"


def revision_name(pool: VirtualMachinePool, generation: int) -> str:
    return f"{pool.metadata.name}-{generation}"


def template_of(pool: VirtualMachinePool) -> dict[str, Any]:
    """What a VM is made from, for comparison and for the revision."""
    plain: dict[str, Any] = to_plain(pool.spec.virtual_machine_template)
    return plain


def spec_for(pool: VirtualMachinePool, number: int, revision: str) -> VirtualMachineSpec:
    """The template's spec with the number in the names that must differ from VM to VM."""
    spec: dict[str, Any] = to_plain(pool.spec.virtual_machine_template.spec)
    templates = spec.get("dataVolumeTemplates") or []
    own = {(t.get("metadata") or {}).get("name", "") for t in templates}
    for template in templates:
        template["metadata"]["name"] += f"-{number}"
    machine = spec.setdefault("template", {})
    labels = machine.setdefault("metadata", {}).setdefault("labels", {})
    labels[names.LABEL_POOL_REVISION] = revision
    generation = pool.spec.name_generation
    for volume in (machine.get("spec") or {}).get("volumes") or []:
        _number_claims(volume, own, number)
        if generation is not None and generation.append_index_to_config_map_refs:
            _append(volume.get("configMap"), "name", number)
        if generation is not None and generation.append_index_to_secret_refs:
            _number_secrets(volume, number)
    return from_plain(spec, VirtualMachineSpec)


def _append(part: dict[str, Any] | None, key: str, number: int) -> None:
    if part and part.get(key):
        part[key] = f"{part[key]}-{number}"


def _number_claims(volume: dict[str, Any], own: set[str], number: int) -> None:
    for source, key in (("dataVolume", "name"), ("persistentVolumeClaim", "claimName")):
        if (volume.get(source) or {}).get(key) in own:
            _append(volume[source], key, number)


def _number_secrets(volume: dict[str, Any], number: int) -> None:
    _append(volume.get("secret"), "secretName", number)
    for source in ("cloudInitNoCloud", "cloudInitConfigDrive"):
        for ref in ("secretRef", "networkDataSecretRef"):
            _append((volume.get(source) or {}).get(ref), "name", number)


def make_vm(pool: VirtualMachinePool, number: int, revision: str, finalizers: Sequence[str] = ()) -> VirtualMachine:
    given = pool.spec.virtual_machine_template.metadata or ObjectMeta()
    metadata = ObjectMeta(
        name=f"{pool.metadata.name}-{number}",
        namespace=pool.metadata.namespace,
        labels=given.labels | {names.LABEL_POOL_REVISION: revision},
        annotations=dict(given.annotations),
        finalizers=list(finalizers),
        owner_references=[owner_reference(pool)],
    )
    return VirtualMachine(metadata=metadata, spec=spec_for(pool, number, revision))


def relabelled(vm: VirtualMachine, before: dict[str, Any], pool: VirtualMachinePool, revision: str) -> ObjectMeta:
    """The VM's labels and annotations with the new template's instead of the old one's; others are the user's."""
    given = pool.spec.virtual_machine_template.metadata or ObjectMeta()
    old = before.get("metadata") or {}
    labels = _without(vm.metadata.labels, old.get("labels")) | given.labels | {names.LABEL_POOL_REVISION: revision}
    annotations = _without(vm.metadata.annotations, old.get("annotations")) | given.annotations
    return replace(vm.metadata, labels=labels, annotations=annotations)


def _without(values: dict[str, str], gone: dict[str, str] | None) -> dict[str, str]:
    return {key: value for key, value in values.items() if key not in (gone or {})}


def renewed(vm: VirtualMachine, spec: VirtualMachineSpec) -> VirtualMachineSpec:
    """The new spec with what the VM got when it was made: who it is does not change."""
    old = vm.spec.template.spec.domain.firmware if vm.spec.template is not None else None
    if old is not None and spec.template is not None:
        domain = spec.template.spec.domain
        new = domain.firmware or Firmware()
        domain.firmware = replace(new, uuid=new.uuid or old.uuid, serial=new.serial or old.serial)
    return spec
