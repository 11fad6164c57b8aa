"""What a plan is made from, and what it is made of. No keys and no API objects here: only names and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

#: The shortest lifetimes that leave the programs time to take over what is new.
_SHORTEST = timedelta(seconds=3)
_LONGEST_OVERLAP = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Policy:
    """How long things live, and what follows from that."""

    ca_life: timedelta
    leaf_life: timedelta

    def __post_init__(self) -> None:
        if not _SHORTEST <= self.leaf_life <= self.ca_life:
            raise ValueError(
                f"a leaf certificate lives at least {_SHORTEST} and at most as long as its CA: "
                f"the lifetimes are {self.leaf_life} (leaf) and {self.ca_life} (CA)"
            )

    @property
    def overlap(self) -> timedelta:
        """How long a new CA is trusted before it signs, and an old one after the last of its certificates is gone."""
        return min(self.ca_life / 10, _LONGEST_OVERLAP)


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA certificate; `id` is its fingerprint."""

    id: str
    made: datetime
    ends: datetime


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate in its Secret; `fits` says that it carries its role and its key is its own."""

    #: The authority in sight that has signed it; empty when there is none.
    issuer: str
    made: datetime
    ends: datetime
    fits: bool = True


@dataclass(frozen=True, slots=True)
class State:
    """All that is in the cluster of it."""

    #: With their keys. The active one signs; the next one waits until everybody trusts it.
    active: Authority | None = None
    next: Authority | None = None
    #: Everything that is to be trusted, these two included, the oldest first.
    trusted: tuple[Authority, ...] = ()
    leaves: Mapping[str, Leaf | None] = field(default_factory=dict)
    #: Who holds a bundle (Secrets, API services) and which authorities are in it; None: none, or garbage.
    bundles: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    #: Since when everybody trusts the next authority; since when nobody shows a certificate of an old one.
    next_since: datetime | None = None
    settled_since: datetime | None = None


class Slot(StrEnum):
    ACTIVE = "active"
    NEXT = "next"


class Mark(StrEnum):
    NEXT_TRUSTED = "next-trusted"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class Make:
    """A new authority."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class Promote:
    """The next authority becomes the active one; the old one stays trusted, its key goes."""


@dataclass(frozen=True, slots=True)
class Forget:
    """No longer trusted."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """Write down since when something holds, so that a new leader goes on where the old one was."""

    mark: Mark


@dataclass(frozen=True, slots=True)
class Publish:
    """The bundle of a holder is not as it should be."""

    holder: str


@dataclass(frozen=True, slots=True)
class Issue:
    """A new certificate, with the bundle beside it."""

    leaf: str
    signer: Slot


Step = Make | Promote | Forget | Note | Publish | Issue
#: They change the authorities; what follows from them is planned anew.
AUTHORITY_STEPS = (Make, Promote, Forget, Note)


@dataclass(frozen=True, slots=True)
class Plan:
    steps: tuple[Step, ...]
    #: The bundle that everybody is to hold: ids, in order.
    bundle: tuple[str, ...]
    #: When to look again even if nothing changes.
    wake: datetime
