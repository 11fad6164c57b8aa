"""Rules about labels and annotations that steer our own programs."""

from __future__ import annotations

from collections.abc import Iterator

from virt_api.admission.causes import Cause, invalid, not_supported
from virt_core.apis import hooksidecars, names
from virt_core.apis.ignition import fault_of
from virt_core.apis.interfaces import MOST_PCI_PORTS, interface_slots
from virt_core.apis.meta import ObjectMeta
from virt_core.kube.configvalues import ClusterConfig

#: annotation → the gate that allows it
GATED_ANNOTATIONS = (
    (names.ANNOTATION_IGNITION, "ExperimentalIgnitionSupport"),
    (names.ANNOTATION_HOOK_SIDECARS, "Sidecar"),
)


def broken_metadata(
    path: str, labels: dict[str, str], annotations: dict[str, str], config: ClusterConfig, *, trusted: bool
) -> Iterator[Cause]:
    restricted = sorted(set(labels) & set(names.RESTRICTED_LABELS))
    if restricted and not trusted:
        yield not_supported(f"{path}.labels", f"{', '.join(restricted)} can only be set by Virtpod")
    ours = sorted(set(annotations) & set(names.RESTRICTED_ANNOTATIONS))
    if ours and not trusted:
        yield not_supported(f"{path}.annotations", f"{', '.join(ours)} can only be set by Virtpod")
    for annotation, gate in GATED_ANNOTATIONS:
        if annotation in annotations and not config.has(gate):
            yield invalid(f"{path}.annotations", f"{annotation} needs the feature gate {gate}")
    data = annotations.get(names.ANNOTATION_IGNITION)
    if data is not None and config.has("ExperimentalIgnitionSupport") and (fault := fault_of(data)):
        yield invalid(f"{path}.annotations", f"{names.ANNOTATION_IGNITION} {fault}")
    if config.has("Sidecar") and (fault := hooksidecars.fault_of(annotations)):
        yield invalid(f"{path}.annotations", f"{names.ANNOTATION_HOOK_SIDECARS} {fault}")
    slots = annotations.get(names.ANNOTATION_PCI_INTERFACE_SLOTS, "0")
    if interface_slots(slots) is None:
        what = f"{names.ANNOTATION_PCI_INTERFACE_SLOTS} is {slots!r}"
        yield invalid(f"{path}.annotations", f"{what}, not a number of ports between 0 and {MOST_PCI_PORTS}")


def template_metadata(path: str, metadata: ObjectMeta, config: ClusterConfig, *, trusted: bool) -> Iterator[Cause]:
    """Those of a machine that is not made yet."""
    yield from broken_metadata(path, metadata.labels, metadata.annotations, config, trusted=trusted)
