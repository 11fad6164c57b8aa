"""What a Pod's claims mean for its place: which it must wait for, and which nodes reach their volumes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from virt_core.apis.names import BINDING_FIRST_CONSUMER
from virt_core.apis.pods import Pod
from virt_core.apis.registry import key_for
from virt_core.apis.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from virt_local.controllers.scheduler.fit import NodeState, term_matches
from virt_local.storage.uses import claims_used, users

_ONE_POD = "ReadWriteOncePod"


@dataclass
class Volumes:
    #: Why the Pod cannot run anywhere yet.
    problems: list[str] = field(default_factory=list)
    #: Claims that wait to hear where their first consumer will be.
    unbound: list[PersistentVolumeClaim] = field(default_factory=list)
    bound: list[PersistentVolume] = field(default_factory=list)

    def problem(self, nodes: int) -> str:
        return f"0/{nodes} nodes are available: {', '.join(self.problems)}."

    def fit(self, state: NodeState) -> bool:
        return all(_reaches(state, volume) for volume in self.bound)


def look_at(
    pod: Pod,
    claim_of: Callable[[str], PersistentVolumeClaim | None],
    volume_of: Callable[[str], PersistentVolume | None],
    class_of: Callable[[str], StorageClass | None],
    pods: Iterable[Pod],
) -> Volumes:
    result, others = Volumes(), [other for other in pods if other.metadata.uid != pod.metadata.uid]
    for name in sorted(claims_used(pod)):
        claim = claim_of(key_for(pod.metadata.namespace, name))
        if claim is None:
            result.problems.append(f'persistentvolumeclaim "{name}" not found')
        elif claim.metadata.deletion_timestamp:
            result.problems.append(f'persistentvolumeclaim "{name}" is being deleted')
        elif _ONE_POD in claim.spec.access_modes and _taken(claim, others):
            text = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
            result.problems.append(text)
        else:
            _sort_in(result, claim, volume_of, class_of)
    return result


def _sort_in(
    result: Volumes,
    claim: PersistentVolumeClaim,
    volume_of: Callable[[str], PersistentVolume | None],
    class_of: Callable[[str], StorageClass | None],
) -> None:
    volume = volume_of(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None and claim.status.phase == "Bound":
        result.bound.append(volume)
        return
    chosen = class_of(claim.spec.storage_class_name or "")
    if chosen is not None and chosen.volume_binding_mode == BINDING_FIRST_CONSUMER:
        result.unbound.append(claim)
    else:
        result.problems.append("pod has unbound immediate PersistentVolumeClaims")


def _taken(claim: PersistentVolumeClaim, others: Iterable[Pod]) -> bool:
    """By a Pod that has its place."""
    return any(other.spec.node_name for other in users(others, claim))


def _reaches(state: NodeState, volume: PersistentVolume) -> bool:
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    return required is None or any(term_matches(term, state) for term in required.node_selector_terms)
