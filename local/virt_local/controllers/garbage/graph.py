"""Who owns whom, by UID. Pure: changes in, decisions out."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


@dataclass(frozen=True, slots=True)
class Owner:
    uid: str
    blocks: bool = False


@dataclass(frozen=True, slots=True)
class Item:
    """One stored object, as far as ownership goes."""

    uid: str
    storage: str
    namespace: str
    name: str
    owners: tuple[Owner, ...] = ()
    deleting: bool = False
    finalizers: tuple[str, ...] = ()

    @property
    def foreground(self) -> bool:
        """It waits for its dependents to go first."""
        return self.deleting and FOREGROUND in self.finalizers

    @property
    def orphaning(self) -> bool:
        """Its dependents are to stay, without it."""
        return self.deleting and ORPHAN in self.finalizers


class Act(Enum):
    NOTHING = "nothing"
    DELETE = "delete"
    DROP_OWNERS = "drop owners"
    DROP_FINALIZER = "drop finalizer"
    RELEASE = "release dependents"


@dataclass(frozen=True, slots=True)
class Decision:
    act: Act
    policy: str = "Background"
    owners: frozenset[str] = frozenset()
    finalizer: str = ""
    dependents: tuple[str, ...] = ()


_NOTHING = Decision(Act.NOTHING)


@dataclass
class Graph:
    items: dict[str, Item] = field(default_factory=dict)
    dependents: dict[str, set[str]] = field(default_factory=dict)

    def put(self, item: Item) -> list[str]:
        """Takes an object as it is now; returns the UIDs to look at."""
        old = self.items.get(item.uid)
        if old is not None:
            self._unlink(old)
        self.items[item.uid] = item
        for owner in item.owners:
            self.dependents.setdefault(owner.uid, set()).add(item.uid)
        look = [item.uid] if item.owners or item.foreground or item.orphaning else []
        if item.foreground:
            look += self.dependents.get(item.uid, ())
        return look

    def remove(self, uid: str) -> list[str]:
        """An object is gone; returns the UIDs to look at: what it owned, and owners that waited for it."""
        item = self.items.pop(uid, None)
        if item is None:
            return []
        self._unlink(item)
        waiting = [owner.uid for owner in item.owners if self._is(owner.uid, "foreground")]
        return [*self.dependents.get(uid, ()), *waiting]

    def decide(self, uid: str) -> Decision:
        item = self.items.get(uid)
        if item is None:
            return _NOTHING
        if item.orphaning:
            return self._orphan(item)
        if item.foreground:
            waited_for = self._blocking(item)
            return _NOTHING if waited_for else Decision(Act.DROP_FINALIZER, finalizer=FOREGROUND)
        return self._by_owners(item)

    def _by_owners(self, item: Item) -> Decision:
        if not item.owners or item.deleting:
            return _NOTHING
        solid = [owner for owner in item.owners if self._is_solid(owner.uid, item)]
        waiting = [owner for owner in item.owners if self._is(owner.uid, "foreground")]
        lost = frozenset(owner.uid for owner in item.owners if owner not in solid)
        if solid:
            return Decision(Act.DROP_OWNERS, owners=lost) if lost else _NOTHING
        if any(self._is(owner.uid, "orphaning") for owner in item.owners):
            return _NOTHING  # The owner takes its reference away and looks at us again.
        own_dependents = bool(self.dependents.get(item.uid))
        return Decision(Act.DELETE, policy="Foreground" if waiting and own_dependents else "Background")

    def _orphan(self, item: Item) -> Decision:
        left = tuple(sorted(self.dependents.get(item.uid, ())))
        if left:
            return Decision(Act.RELEASE, dependents=left)
        return Decision(Act.DROP_FINALIZER, finalizer=ORPHAN)

    def _blocking(self, item: Item) -> list[str]:
        found = []
        for uid in self.dependents.get(item.uid, ()):
            dependent = self.items[uid]
            if any(owner.uid == item.uid and owner.blocks for owner in dependent.owners):
                found.append(uid)
        return found

    def _is_solid(self, uid: str, dependent: Item) -> bool:
        """An owner that exists where it may: in the same namespace or outside all of them. Waiting ones do not hold."""
        owner = self.items.get(uid)
        if owner is None or owner.foreground or owner.orphaning:
            return False
        return owner.namespace in ("", dependent.namespace)

    def _is(self, uid: str, what: str) -> bool:
        owner = self.items.get(uid)
        return owner is not None and bool(getattr(owner, what))

    def _unlink(self, item: Item) -> None:
        for owner in item.owners:
            found = self.dependents.get(owner.uid)
            if found is not None:
                found.discard(item.uid)
                if not found:
                    del self.dependents[owner.uid]
