"""Which mediated devices shall be made on this node, and which of ours shall go. Pure.

The KubeVirt object names types (`mediatedDevicesConfiguration`), and other ones for nodes with certain labels. A card
has devices of one type, as many as fit; where cards know several of the wanted types, these take turns.

A device is ours if its UUID follows from its card, its type and a number: so a restart forgets nothing, and what others
made is never touched, nor a card on which there is something of theirs.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from virt_core.apis.base import from_plain
from virt_core.apis.configparts import MediatedDevicesConfiguration, NodeMediatedDeviceTypesConfig
from virt_handler.node.devices.sysfs import Card, CardType, normal_type

#: The gate with which a cluster says that somebody else makes them.
HANDS_OFF = "DisableMDEVConfiguration"
#: More than any card has; a driver that promises more is not believed.
MOST = 256
_OURS = uuid.UUID("7d3f6c52-93b7-5f0e-8d0e-6b1f5a1c40aa")


@dataclass(frozen=True, slots=True)
class Making:
    card: str
    type_id: str
    uuid: str


@dataclass(frozen=True, slots=True)
class Plan:
    make: tuple[Making, ...] = ()
    #: UUIDs of ours that nobody wants any more.
    remove: tuple[str, ...] = ()


def wanted_types(
    configuration: object, labels: Mapping[str, str] | None, gates: frozenset[str] = frozenset()
) -> tuple[str, ...] | None:
    """In the order in which they take turns; None: it is not for us to say, so all stays as it is."""
    given = from_plain(configuration or {}, MediatedDevicesConfiguration)
    if HANDS_OFF in gates or given.enabled is False or labels is None:
        return None
    special = [entry for entry in given.node_mediated_device_types if entry.node_selector.items() <= labels.items()]
    sources: Sequence[MediatedDevicesConfiguration | NodeMediatedDeviceTypesConfig] = special or [given]
    return tuple(dict.fromkeys(normal_type(name) for source in sources for name in _types(source)))


def _types(given: MediatedDevicesConfiguration | NodeMediatedDeviceTypesConfig) -> list[str]:
    return given.mediated_device_types or given.mediated_devices_types


def plan(cards: Sequence[Card], wanted: Sequence[str]) -> Plan:
    turns: Counter[str] = Counter()
    make: list[Making] = []
    remove: list[str] = []
    free: list[Card] = []
    for card in cards:
        kept = _type_that_stays(card, wanted)
        if any(not is_ours(card, kind, device) for kind in card.types for device in kind.devices):
            continue  # Somebody else looks after this card.
        remove += [device for kind in card.types if kind is not kept for device in kind.devices]
        if kept is not None:
            turns[_name(kept, wanted)] += 1
            make += _fill(card, kept)
        elif not any(kind.devices for kind in card.types):
            free.append(card)
    for card in free:
        chosen = _next(card, wanted, turns)
        if chosen is not None:
            turns[_name(chosen, wanted)] += 1
            make += _fill(card, chosen)
    return Plan(tuple(make), tuple(remove))


def _type_that_stays(card: Card, wanted: Sequence[str]) -> CardType | None:
    """What it has devices of goes before what it might have."""
    return next((kind for kind in card.types if kind.devices and _name(kind, wanted)), None)


def _next(card: Card, wanted: Sequence[str], turns: Mapping[str, int]) -> CardType | None:
    possible = [kind for kind in card.types if _name(kind, wanted) and kind.available > 0]
    order = {name: number for number, name in enumerate(wanted)}
    ranked = sorted(possible, key=lambda kind: (turns[_name(kind, wanted)], order[_name(kind, wanted)]))
    return ranked[0] if ranked else None


def _name(kind: CardType, wanted: Sequence[str]) -> str:
    """As the configuration spells it: by its identifier or by its name for people; empty if it is not wanted."""
    return next((name for name in (kind.id, kind.name) if name in wanted), "")


def _fill(card: Card, kind: CardType) -> list[Making]:
    room = max(0, min(kind.available, MOST - len(kind.devices)))
    names = (uuid_of(card.name, kind.id, number) for number in range(MOST))
    return [Making(card.name, kind.id, name) for name in [n for n in names if n not in kind.devices][:room]]


def uuid_of(card: str, type_id: str, number: int) -> str:
    return str(uuid.uuid5(_OURS, f"{card}/{type_id}/{number}"))


def is_ours(card: Card, kind: CardType, device: str) -> bool:
    return device in _ours(card.name, kind.id)


@lru_cache(maxsize=64)
def _ours(card: str, type_id: str) -> frozenset[str]:
    return frozenset(uuid_of(card, type_id, number) for number in range(MOST))
