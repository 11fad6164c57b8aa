"""The networks of a running launcher Pod: what its VMI wants of it by now, and what it tells the VMI. Pure."""

from __future__ import annotations

import re

from msgspec.structs import replace

from virt_core.apis import names, podnetworks
from virt_core.apis.podnetworks import SOURCE_MULTUS, Attached
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VirtualMachineInstanceNetworkInterface as StatusInterface
from virt_core.kube.patch import op, pointer

_ANNOTATIONS = ("metadata", "annotations")
_OUR_NAME = re.compile(r"pod[0-9a-f]{11}")


def definitions(vmi: VirtualMachineInstance) -> list[str]:
    """The NetworkAttachmentDefinitions that must exist before it can start, as namespace/name."""
    space = vmi.metadata.namespace
    wanted = {nic.name for nic in vmi.spec.domain.devices.interfaces if nic.state != podnetworks.ABSENT}
    found = [n.multus for n in vmi.spec.networks if n.multus is not None and n.name in wanted]
    return ["/".join(podnetworks.definition_of(multus, space)) for multus in found]


def follow(vmi: VirtualMachineInstance, pod: Pod) -> list[StatusInterface]:
    """The status of the NICs with what the Pod says of their networks. Only interfaces that we named count."""
    networks, told = podnetworks.secondary(vmi.spec), podnetworks.attached(pod.metadata.annotations)
    known = [
        _followed(entry, told.get(podnetworks.interface_name(entry.name))) if entry.name in networks else entry
        for entry in vmi.status.interfaces
    ]
    listed = {entry.name for entry in known}
    known += [
        _followed(StatusInterface(name=name), told[interface])
        for name in networks
        if name not in listed and (interface := podnetworks.interface_name(name)) in told
    ]
    # One that came to the Pod and is nowhere else is gone when the Pod has lost it.
    return [entry for entry in known if not entry.name or entry.info_source or entry.name not in networks]


def _followed(entry: StatusInterface, told: Attached | None) -> StatusInterface:
    sources = [word for word in podnetworks.sources(entry.info_source) if word != SOURCE_MULTUS]
    if told is None:
        return replace(entry, info_source=podnetworks.joined(*sources))
    source = podnetworks.joined(*sources, SOURCE_MULTUS)
    return replace(entry, info_source=source, pod_interface_name=told.interface)


def operations(vmi: VirtualMachineInstance, pod: Pod) -> list[dict[str, object]]:
    """What makes the Pod ask for the networks that the VMI has by now. Nothing for a VMI that never had one: what its
    owner wrote into the annotation stays."""
    asked = pod.metadata.annotations.get(names.ANNOTATION_NETWORKS, "")
    # What binding plugins asked for at the start stays to the end.
    plugins = [each for each in podnetworks.selections(asked) if podnetworks.LOGIC_NETWORK in each.cni_args]
    wanted = [*podnetworks.requested(vmi, started=True), *plugins]
    if not wanted and not _is_ours(asked):
        return []
    path, text = pointer(*_ANNOTATIONS, names.ANNOTATION_NETWORKS), podnetworks.text(wanted) if wanted else ""
    if text == asked:
        return []
    return [op.add(path, text)] if text else [op.remove(path)]


def _is_ours(asked: str) -> bool:
    """Whether we wrote it: every interface in it is named after a network of a VMI, or a binding plugin's."""
    selections = podnetworks.selections(asked)
    return bool(selections) and all(
        _OUR_NAME.fullmatch(each.interface) or podnetworks.LOGIC_NETWORK in each.cni_args for each in selections
    )
