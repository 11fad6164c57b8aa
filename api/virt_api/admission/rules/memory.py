"""Rules about memory and the resources that are asked of the node."""

from __future__ import annotations

from collections.abc import Iterator

from virt_api.admission.causes import Cause, invalid, required
from virt_api.admission.rules.base import Check
from virt_core.apis.quantity import Quantity, QuantityError, parse_bytes, parse_quantity

_SMALLEST_REQUEST = 1_000_000
_SMALLEST_GUEST = 1 << 20


def memory_given(check: Check) -> Iterator[Cause]:
    memory, resources = check.spec.domain.memory, check.spec.domain.resources
    given = memory is not None and (memory.guest is not None or memory.hugepages is not None)
    if not given and "memory" not in resources.requests and "memory" not in resources.limits:
        yield required(f"{check.domain}.memory.guest", "must say how much memory the guest has")


def guest_size(check: Check) -> Iterator[Cause]:
    """Below a mebibyte no guest starts; 128m is a slip of the pen for 128Mi."""
    memory = check.spec.domain.memory
    if memory is None or memory.guest is None:
        return
    guest = parse_quantity(memory.guest)
    field = f"{check.domain}.memory.guest"
    if guest < 0:
        yield invalid(field, "must not be negative")
    elif guest < _SMALLEST_GUEST:
        yield invalid(field, f"{memory.guest} is less than 1Mi; a size in mebibytes ends with Mi")


def requested_memory(check: Check) -> Iterator[Cause]:
    resources = check.spec.domain.resources
    field = f"{check.domain}.resources.requests.memory"
    asked = _value(resources.requests, "memory")
    limit = _value(resources.limits, "memory")
    if asked is not None and asked < 0:
        yield invalid(field, "must not be negative")
    elif asked is not None and 0 < asked < _SMALLEST_REQUEST:
        yield invalid(field, "must be 1M or more")
    if asked is not None and limit is not None and limit > 0 and asked > limit:
        yield invalid(field, "must not exceed limits.memory")
    if limit is not None and limit < 0:
        yield invalid(f"{check.domain}.resources.limits.memory", "must not be negative")


def guest_within_limit(check: Check) -> Iterator[Cause]:
    """Where memory may grow later, the limit does not bind the guest."""
    memory, limits = check.spec.domain.memory, check.spec.domain.resources.limits
    if check.config.live_update or memory is None or memory.guest is None or "memory" not in limits:
        return
    if parse_bytes(memory.guest) > parse_bytes(limits["memory"]):
        yield invalid(f"{check.domain}.memory.guest", "must not exceed resources.limits.memory")


def hugepages(check: Check) -> Iterator[Cause]:
    memory, resources = check.spec.domain.memory, check.spec.domain.resources
    if memory is None or memory.hugepages is None:
        return
    field = f"{check.domain}.memory.hugepages.pageSize"
    try:
        page = parse_bytes(memory.hugepages.page_size)
    except QuantityError as error:
        yield invalid(field, str(error))
        return
    if page <= 0:
        yield invalid(field, "must be more than 0")
        return
    size = resources.requests.get("memory") or memory.guest or resources.limits.get("memory")
    total = parse_bytes(size) if size is not None else page
    if total < page or total % page:
        yield invalid(
            f"{check.domain}.resources.requests.memory",
            f"{size} is not a multiple of the page size {memory.hugepages.page_size}",
        )


def reserved_overhead(check: Check) -> Iterator[Cause]:
    memory = check.spec.domain.memory
    if memory is not None and memory.reserved_overhead is not None and not check.config.has("ReservedOverheadMemlock"):
        yield invalid(f"{check.domain}.memory.reservedOverhead", "needs the feature gate ReservedOverheadMemlock")


def requested_cpu(check: Check) -> Iterator[Cause]:
    resources = check.spec.domain.resources
    root = f"{check.domain}.resources"
    asked, limit = _value(resources.requests, "cpu"), _value(resources.limits, "cpu")
    if asked is not None and asked < 0:
        yield invalid(f"{root}.requests.cpu", "must not be negative")
    if limit is not None and limit < 0:
        yield invalid(f"{root}.limits.cpu", "must not be negative")
    if asked is not None and limit is not None and limit > 0 and asked > limit:
        yield invalid(f"{root}.requests.cpu", "must not exceed limits.cpu")


def _value(resources: dict[str, Quantity], name: str) -> float | None:
    return float(parse_quantity(resources[name])) if name in resources else None
