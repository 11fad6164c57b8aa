"""VirtualMachineInstancePresets: parts of a VMI that come from elsewhere, and the webhook that checks them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from virt_api.admission.causes import Cause, Refused, invalid, required
from virt_api.admission.objects import annotations_of, document_of, labels_of, read_member
from virt_api.admission.review import Accepted
from virt_api.admission.rules import disks, firmware
from virt_api.admission.rules.base import Check
from virt_core.apis import selectors
from virt_core.apis.admission import AdmissionRequest
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.domain import DomainSpec
from virt_core.apis.preset import VirtualMachineInstancePreset, VirtualMachineInstancePresetSpec
from virt_core.apis.vmi import VirtualMachineInstanceSpec
from virt_core.kube.configvalues import ClusterConfig

EXCLUDE = "virtualmachineinstancepresets.admission.kubevirt.io/exclude"
DEPRECATED = "VirtualMachineInstancePresets are deprecated; use instance types and preferences"
#: What a preset may give. The rest of its domain is ignored.
_PARTS = ("cpu", "firmware", "features", "io_threads_policy")
_DISK_RULES = (disks.disk_targets, disks.disk_buses, disks.disk_pci_addresses, disks.boot_orders, disks.disk_options,
               disks.block_sizes, firmware.bootloader, firmware.kernel_boot)  # fmt: skip


def merge_presets(
    spec: VirtualMachineInstanceSpec, document: dict[str, Any], presets: Sequence[VirtualMachineInstancePreset]
) -> list[str]:
    """Fills in the spec in place; the names of the presets that gave something. What the VMI says itself wins."""
    if not presets or annotations_of(document).get(EXCLUDE) == "true":
        return []
    labels = labels_of(document)
    chosen = [preset for preset in presets if _is_for(preset, labels)]
    if causes := list(_conflicts(chosen)):
        raise Refused(causes)
    return [preset.metadata.name for preset in chosen if _merge(spec.domain, preset.spec.domain or DomainSpec())]


def _is_for(preset: VirtualMachineInstancePreset, labels: dict[str, str]) -> bool:
    return not selectors.flaw(preset.spec.selector) and selectors.matches(preset.spec.selector, labels)


def _conflicts(presets: Sequence[VirtualMachineInstancePreset]) -> Iterator[Cause]:
    """Two presets that say different things of the same part."""
    said: dict[str, tuple[Any, str]] = {}
    for preset in presets:
        for part, value in _offers(preset.spec.domain or DomainSpec()).items():
            before = said.setdefault(part, (value, preset.metadata.name))
            if before[0] != value:
                names = f"{before[1]!r} and {preset.metadata.name!r}"
                yield invalid(f"spec.domain.{part}", f"the presets {names} disagree")


def _offers(domain: DomainSpec) -> dict[str, Any]:
    parts = {part: getattr(domain, part) for part in (*_PARTS, "clock")}
    parts["watchdog"] = domain.devices.watchdog
    parts["resources.requests"] = domain.resources.requests or None
    return {part: to_plain(value) for part, value in parts.items() if value is not None}


def _merge(domain: DomainSpec, preset: DomainSpec) -> bool:
    """Whether anything was taken. A part that the VMI has itself stays as it is."""
    before = msgspec.json.encode(domain)
    if preset.resources.requests and not domain.resources.requests:
        domain.resources.requests = dict(preset.resources.requests)
    for part in _PARTS:
        if getattr(domain, part) is None:
            setattr(domain, part, _copy(getattr(preset, part)))
    if preset.clock is not None:
        if domain.clock is None:
            domain.clock = _copy(preset.clock)
        elif domain.clock.timer is None:
            domain.clock.timer = _copy(preset.clock.timer)
    if domain.devices.watchdog is None:
        domain.devices.watchdog = _copy(preset.devices.watchdog)
    return msgspec.json.encode(domain) != before


def _copy(value: Any) -> Any:
    """Presets come from a cache, which nobody may change."""
    return from_plain(to_plain(value), type(value)) if isinstance(value, msgspec.Struct) else value


class PresetValidator:
    """A preset's domain must be there, and its disks and firmware must make sense."""

    def __call__(self, request: AdmissionRequest) -> Accepted:
        spec = read_member(document_of(request.object), VirtualMachineInstancePresetSpec)
        if causes := list(self._causes(spec)):
            raise Refused(causes)
        return Accepted(warnings=[DEPRECATED])

    def _causes(self, spec: VirtualMachineInstancePresetSpec) -> Iterator[Cause]:
        if spec.domain is None:
            yield required("spec.domain", "must be given")
            return
        if problem := selectors.flaw(spec.selector):
            yield invalid("spec.selector", problem)
        check = Check(VirtualMachineInstanceSpec(domain=spec.domain), ClusterConfig())
        for rule in _DISK_RULES:
            yield from rule(check)
