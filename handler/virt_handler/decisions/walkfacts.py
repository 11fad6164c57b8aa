"""What is known of one NIC when its way is explained. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from virt_core.apis.netplan import (
    LEASE_ASKED,
    LEASE_GIVEN,
    LEASE_GIVEN6,
    LEASE_REFUSED,
    NetObservation,
    NetProbe,
    NetReportInterface,
)
from virt_protos.launcher.v1 import launcher_pb2 as pb

#: What proves that somebody has an address; an echo is a courtesy.
_PROOFS = ("arp", "nd")


@dataclass(frozen=True, slots=True)
class NicFacts:
    name: str
    binding: str
    seen: NetObservation | None = None
    #: Why there is nothing to be seen.
    trouble: str = ""
    #: `state` of the spec.
    wanted: str = ""
    model: str = "virtio"
    #: The machine's own card, with what the guest agent says of it.
    card: pb.GuestInterface | None = None
    agent: bool = False
    paused: bool = False

    @property
    def wired(self) -> NetReportInterface:
        known = self.seen.wired if self.seen is not None else None
        return known or NetReportInterface(name=self.name)

    @property
    def mac(self) -> str:
        return self.wired.mac.lower()

    def counted(self, *names: str) -> int:
        counters = self.seen.counters if self.seen is not None else {}
        return sum(counters.get(name, 0) for name in names)

    @property
    def asked(self) -> int:
        return self.counted(LEASE_ASKED)

    @property
    def given(self) -> int:
        return self.counted(LEASE_GIVEN)

    @property
    def given6(self) -> int:
        return self.counted(LEASE_GIVEN6)

    @property
    def refused(self) -> int:
        return self.counted(LEASE_REFUSED)

    @property
    def counts_leases(self) -> bool:
        """Rules of an older version do not."""
        return self.seen is not None and LEASE_GIVEN in self.seen.counters and LEASE_ASKED in self.seen.counters

    @property
    def from_guest(self) -> int:
        """Frames that ever came out of the guest."""
        return self.seen.tap.rx_packets if self.seen is not None and self.seen.tap is not None else 0

    @property
    def proofs(self) -> list[NetProbe]:
        return [probe for probe in self.seen.probes if probe.kind in _PROOFS] if self.seen is not None else []

    @property
    def answered(self) -> list[str]:
        """Its addresses at which it answered, as itself."""
        return [probe.ip for probe in self.proofs if probe.mac and probe.mac.lower() == self.mac]

    @property
    def silent(self) -> list[str]:
        return [probe.ip for probe in self.proofs if not probe.mac]

    @property
    def masked(self) -> list[str]:
        """MACs that are not its own, under which it answered."""
        return [probe.mac for probe in self.proofs if probe.mac and probe.mac.lower() != self.mac]

    @property
    def from_agent(self) -> pb.GuestInterface | None:
        return self.card if self.card is not None and self.card.from_agent else None


def listed(words: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    parts = list(words)
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))
