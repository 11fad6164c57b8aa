"""The objects that a set owns, those it could take over, and the conditions that both kinds of sets have."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from virt_core.apis import names
from virt_core.apis.facts import is_terminating
from virt_core.apis.meta import Condition, LabelSelector, OwnerReference
from virt_core.apis.registry import owner_reference
from virt_core.apis.selectors import chooses
from virt_core.kube.client import KubeClient, KubeObject
from virt_core.kube.conditions import remove_condition, set_condition
from virt_core.kube.errors import NotFound
from virt_core.kube.patch import op
from virt_core.kube.writes import write_operations

T = TypeVar("T", bound=KubeObject)

REPLICA_FAILURE = "ReplicaFailure"
REPLICA_PAUSED = "ReplicaPaused"
#: Which objects a controller owns, and which nobody owns, by namespace.
CONTROLLER_INDEX = "controller"
ORPHAN_INDEX = "orphan"


def controller_of(obj: KubeObject) -> OwnerReference | None:
    return next((ref for ref in obj.metadata.owner_references if ref.controller), None)


def controller_indexer(obj: KubeObject) -> list[str]:
    ref = controller_of(obj)
    return [ref.uid] if ref is not None else []


def orphan_indexer(obj: KubeObject) -> list[str]:
    return [] if controller_of(obj) is not None else [obj.metadata.namespace]


def adoptable(selector: LabelSelector, orphans: Iterable[T]) -> list[T]:
    alive = (o for o in orphans if not is_terminating(o))
    return [o for o in alive if chooses(selector, o.metadata.labels)]


def take_over(client: KubeClient, owner: KubeObject, obj: T) -> T:
    owners = [*obj.metadata.owner_references, owner_reference(owner)]
    try:
        return write_operations(client, obj, [op.add("/metadata/ownerReferences", owners)]) or obj
    except NotFound:
        return obj


def release(client: KubeClient, owner: KubeObject, obj: KubeObject) -> None:
    """Its labels are not those that the set looks for any more: it goes on by itself."""
    owners = [ref for ref in obj.metadata.owner_references if ref.uid != owner.metadata.uid]
    try:
        write_operations(client, obj, [op.add("/metadata/ownerReferences", owners)])
    except NotFound:
        return


def conditions(
    current: list[Condition], *, paused: bool, failure: tuple[str, str] | None, now: datetime
) -> list[Condition]:
    """Paused and Failure, as they should be."""
    result = [replace(c) for c in current]
    if paused:
        set_condition(
            result, REPLICA_PAUSED, names.TRUE, "Paused", "nothing is created or deleted while spec.paused is true", now
        )
    else:
        remove_condition(result, REPLICA_PAUSED)
    if failure is not None:
        set_condition(result, REPLICA_FAILURE, names.TRUE, *failure, now)
    else:
        remove_condition(result, REPLICA_FAILURE)
    return result
