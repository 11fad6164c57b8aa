"""Whether a node can give a running Pod other resources, as a kubelet decides it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from virt_core.apis.podparts import ResourceRequirements
from virt_core.apis.pods import Pod
from virt_core.apis.quantity import Quantity, format_bytes, parse_quantity

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
TYPES = (PENDING, IN_PROGRESS)
_RESOURCES = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Held:
    """Why a change of its resources is not in force: a condition of the Pod."""

    type: str
    reason: str
    message: str


def differs(wanted: ResourceRequirements | None, given: ResourceRequirements | None) -> bool:
    want, have = wanted or ResourceRequirements(), given or ResourceRequirements()
    pairs = ((want.requests, have.requests), (want.limits, have.limits))
    return any(_amount(a, name) != _amount(b, name) for a, b in pairs for name in _RESOURCES)


def decide(pod: Pod, others: Iterable[Pod], allocatable: dict[str, Decimal]) -> Held | None:
    """None: there is room for what it asks for."""
    taken = list(others)
    for name in _RESOURCES:
        want, most = requested(pod, name), allocatable[name]
        if want > most:
            text = f"Node didn't have enough capacity: {name}, requested: {_say(name, want)}, {_say(name, most)} in all"
            return Held(PENDING, "Infeasible", text)
        used = sum((requested(other, name) for other in taken), Decimal(0))
        if want + used > most:
            text = f"Node didn't have enough resource: {name}, requested: {_say(name, want)}, used: {_say(name, used)}"
            return Held(PENDING, "Deferred", f"{text}, capacity: {_say(name, most)}")
    return None


def requested(pod: Pod, name: str) -> Decimal:
    return sum((_request(c.resources, name) for c in pod.spec.containers), Decimal(0))


def _request(resources: ResourceRequirements | None, name: str) -> Decimal:
    if resources is None:
        return Decimal(0)
    return _amount({**resources.limits, **resources.requests}, name)


def _amount(amounts: dict[str, Quantity], name: str) -> Decimal:
    return parse_quantity(amounts.get(name, 0))


def _say(name: str, amount: Decimal) -> str:
    return format_bytes(int(amount)) if name == "memory" else str(amount.normalize())
