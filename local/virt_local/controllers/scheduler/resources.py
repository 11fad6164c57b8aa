"""How much a Pod asks for and a node has, in whole numbers: CPU in thousandths, everything else in units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from virt_core.apis.pods import Container, Pod
from virt_core.apis.quantity import Quantity, parse_int, parse_milli

Amounts = dict[str, int]


def amounts(quantities: Mapping[str, Quantity]) -> Amounts:
    return {name: parse_milli(value) if name == "cpu" else parse_int(value) for name, value in quantities.items()}


def requests(pod: Pod) -> Amounts:
    """What the Pod books: its containers together, or its largest init container if that is more, plus overhead."""
    together = total(_of(container) for container in pod.spec.containers)
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            together = total((together, _of(container)))
        else:
            together = largest(together, _of(container))
    return total((together, amounts(pod.spec.overhead)))


def _of(container: Container) -> Amounts:
    if container.resources is None:
        return {}
    # A limit without a request counts as one: so the API defaults it, and devices only have limits.
    return amounts({**container.resources.limits, **container.resources.requests})


def total(parts: Iterable[Amounts]) -> Amounts:
    result: Amounts = {}
    for part in parts:
        for name, value in part.items():
            result[name] = result.get(name, 0) + value
    return result


def largest(one: Amounts, other: Amounts) -> Amounts:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {*one, *other}}
