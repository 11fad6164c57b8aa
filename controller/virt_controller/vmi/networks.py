"""The networks of a running launcher Pod: what its VMI wants of it by now, and what it tells the VMI. Pure."""

from __future__ import annotations

import re
from datetime import datetime

from msgspec.structs import replace

from virt_core.apis import names, podnetworks
from virt_core.apis.base import encode, to_plain
from virt_core.apis.nodedevices import cards
from virt_core.apis.podnetworks import SOURCE_MULTUS, Attached
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VirtualMachineInstanceNetworkInterface as StatusInterface
from virt_core.kube.conditions import get_condition
from virt_core.kube.patch import op, pointer
from virt_core.kube.vmistatus import with_condition, without_condition

_ANNOTATIONS = ("metadata", "annotations")
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
#: Domains of resources that are Kubernetes' own, or ours.
_NOT_DEVICES = ("kubernetes.io", "k8s.io", names.GROUP)
REASON_OTHER_NETWORK = "NetworkChanged"
_OUR_NAME = re.compile(r"pod[0-9a-f]{11}")


def definitions(vmi: VirtualMachineInstance) -> list[str]:
    """The NetworkAttachmentDefinitions that must exist before it can start, as namespace/name."""
    return list(named(vmi).values())


def named(vmi: VirtualMachineInstance) -> dict[str, str]:
    """Likewise, by the VMI's own names of the networks."""
    space = vmi.metadata.namespace
    wanted = {nic.name for nic in vmi.spec.domain.devices.interfaces if nic.state != podnetworks.ABSENT}
    found = {n.name: n.multus for n in vmi.spec.networks if n.multus is not None and n.name in wanted}
    return {name: "/".join(podnetworks.definition_of(multus, space)) for name, multus in found.items()}


def resource_of(definition: podnetworks.NetworkAttachmentDefinition | None) -> str:
    """The resource of a node that a Pod on this network needs; empty: none. Whoever may write definitions must not
    have a launcher Pod ask for memory or for a device of ours by that, so only other people's resources count."""
    said = definition.metadata.annotations.get(names.ANNOTATION_NETWORK_RESOURCE, "") if definition is not None else ""
    domain = said.partition("/")[0]
    return said if _RESOURCE.fullmatch(said) and not domain.endswith(_NOT_DEVICES) else ""


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
    return [*_requests(vmi, pod), *told_devices(vmi, pod)]


def _requests(vmi: VirtualMachineInstance, pod: Pod) -> list[dict[str, object]]:
    asked = pod.metadata.annotations.get(names.ANNOTATION_NETWORKS, "")
    had = {each.interface: each for each in podnetworks.selections(asked)}
    # Nobody pulls a network from under a card that the machine uses; another one it gets in another Pod.
    wanted = [had.get(each.interface, each) for each in podnetworks.requested(vmi, started=True)]
    # What binding plugins asked for at the start stays to the end.
    wanted += [each for each in podnetworks.selections(asked) if podnetworks.LOGIC_NETWORK in each.cni_args]
    if not wanted and not _is_ours(asked):
        return []
    path, text = pointer(*_ANNOTATIONS, names.ANNOTATION_NETWORKS), podnetworks.text(wanted) if wanted else ""
    if text == asked:
        return []
    return [op.add(path, text)] if text else [op.remove(path)]


def with_migration_required(vmi: VirtualMachineInstance, pod: Pod, now: datetime) -> VirtualMachineInstance:
    """Says whether the machine is to be on networks that its Pod is not on, and can get only by a move."""
    kind, others = names.CONDITION_MIGRATION_REQUIRED, _elsewhere(vmi, pod)
    if not others:
        return replace(vmi, status=without_condition(vmi.status, kind))
    words = f"another network for {', '.join(others)} needs another Pod"
    status = with_condition(vmi.status, kind, names.TRUE, REASON_OTHER_NETWORK, words, now=now)
    return replace(vmi, status=status)


def _elsewhere(vmi: VirtualMachineInstance, pod: Pod) -> list[str]:
    said = pod.metadata.annotations.get(names.ANNOTATION_NETWORKS, "")
    had = {each.interface: each.key for each in podnetworks.selections(said)}
    wanted = {each.interface: each.key for each in podnetworks.requested(vmi, started=True)}
    found = podnetworks.secondary(vmi.spec)
    return [
        name
        for name in found
        if (interface := podnetworks.interface_name(name)) in had
        and interface in wanted
        and had[interface] != wanted[interface]
    ]


def is_elsewhere(vmi: VirtualMachineInstance) -> bool:
    condition = get_condition(vmi.status.conditions, names.CONDITION_MIGRATION_REQUIRED)
    return condition is not None and condition.status == names.TRUE


def told_devices(vmi: VirtualMachineInstance, pod: Pod) -> list[dict[str, object]]:
    """What lets the launcher know which device the Pod got for which network."""
    networks, told = podnetworks.secondary(vmi.spec), podnetworks.attached(pod.metadata.annotations)
    listed = []
    for nic in cards(vmi.spec):
        entry = told.get(podnetworks.interface_name(nic.name)) if nic.name in networks else None
        if entry is not None and entry.device_info is not None and entry.device_info.pci is not None:
            listed.append({"network": nic.name, "deviceInfo": to_plain(entry.device_info), "mac": entry.mac})
    text = encode({"interfaces": listed}).decode() if listed else ""
    if not text or text == pod.metadata.annotations.get(names.ANNOTATION_NETWORK_INFO):
        return []
    return [op.add(pointer(*_ANNOTATIONS, names.ANNOTATION_NETWORK_INFO), text)]


def _is_ours(asked: str) -> bool:
    """Whether we wrote it: every interface in it is named after a network of a VMI, or a binding plugin's."""
    selections = podnetworks.selections(asked)
    return bool(selections) and all(
        _OUR_NAME.fullmatch(each.interface) or podnetworks.LOGIC_NETWORK in each.cni_args for each in selections
    )
