"""SCSI persistent reservations: the way to the node's helper, and a node for each machine that shares a disk.

A reservation is the node's, for the storage knows only that one. Two machines on one node would both hold it, and what
it is to keep apart would write at once. So each Pod says which claims it may reserve, and stays away from its like.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from virt_controller.launcher_pod.contributions import NotPermittedError, Parts
from virt_controller.launcher_pod.sections import TemplateConfig
from virt_core.apis import names
from virt_core.apis.meta import LabelSelector, LabelSelectorRequirement
from virt_core.apis.reservations import reserving
from virt_core.apis.scheduling import Affinity, PodAffinityTerm, PodAntiAffinity
from virt_core.apis.selectors import EXISTS
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.volumes import claim_of

_LABEL_LIMIT = 63


def reservations(vmi: VirtualMachineInstance, config: TemplateConfig) -> Parts:
    if not reserving(vmi.spec):
        return Parts()
    if not config.cluster.persistent_reservation:
        raise NotPermittedError("spec.domain.devices.disks: the cluster does not allow persistent reservations now")
    wanted = {names.RESOURCE_RESERVATIONS: "1"}
    # A claim's name may be longer than a label's value; who reads it wants to recognise it.
    labels = {label: name[:_LABEL_LIMIT].rstrip("-.") for label, name in _claims(vmi, config)}
    return Parts(labels=labels, requests=wanted, limits=wanted)


def apart(wanted: Affinity | None, vmi: VirtualMachineInstance, config: TemplateConfig) -> Affinity | None:
    """Not on a node with another machine that may reserve the same claim."""
    terms = [_away_from(label) for label, _ in _claims(vmi, config)]
    if not terms:
        return wanted
    wanted = wanted or Affinity()
    others = wanted.pod_anti_affinity or PodAntiAffinity()
    required = [*others.required_during_scheduling_ignored_during_execution, *terms]
    others = replace(others, required_during_scheduling_ignored_during_execution=required)
    return replace(wanted, pod_anti_affinity=others)


def _claims(vmi: VirtualMachineInstance, config: TemplateConfig) -> Iterator[tuple[str, str]]:
    """The label of each claim that may be reserved, and the claim's name."""
    disks = set(reserving(vmi.spec))
    for volume in vmi.spec.volumes:
        claim = config.claims.get(claim_of(volume)) if volume.name in disks else None
        if claim is not None:
            yield names.LABEL_PREFIX_RESERVATION + claim.metadata.uid, claim.metadata.name


def _away_from(label: str) -> PodAffinityTerm:
    marked = LabelSelector(match_expressions=[LabelSelectorRequirement(key=label, operator=EXISTS)])
    return PodAffinityTerm(topology_key=names.LABEL_NODE_HOSTNAME, label_selector=marked)
