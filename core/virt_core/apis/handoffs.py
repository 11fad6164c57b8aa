"""The handoffs of a VMI: who owns each, how long it may take, and what is missing when it does not come.

Those of the start belong to no Pod in particular; those of a move name the Pod that the guest moves to.

Each owner stamps its handoff into `status.handoffs` with the patch that it writes anyway; `virtctl explain` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virt_core.apis.vmistatus import Handoff


@dataclass(frozen=True, slots=True)
class HandoffKind:
    """One of them, as `virtctl explain` tells of it."""

    name: str
    owner: str
    deadline_s: float
    title: str
    waiting_for: str


ACCEPTED = HandoffKind(
    "accepted", "virt-api", 10, "manifest defaulted, checked and stored", "virt-api to admit the manifest"
)
POD_CREATED = HandoffKind(
    "pod-created", "virt-controller", 10, "launcher Pod created", "virt-controller to create the launcher Pod"
)
POD_STARTED = HandoffKind(
    "pod-started",
    "node",
    60,
    "Pod scheduled, its network and volumes made, its container started",
    "the scheduler and the node to start the launcher Pod",
)
HANDED_OVER = HandoffKind(
    "handed-over", "virt-controller", 10, "VMI handed over to its node", "virt-controller to hand the VMI to its node"
)
NETWORK_READY = HandoffKind(
    "network-ready",
    "virt-netsetup",
    30,
    "bridge, TAP and NAT made in the Pod",
    "virt-netsetup to wire the Pod's network",
)
LAUNCHER_READY = HandoffKind(
    "launcher-ready", "virt-launcher", 60, "launcher and libvirt up", "virt-launcher to open its command socket"
)
DOMAIN_DEFINED = HandoffKind(
    "domain-defined",
    "virt-launcher",
    60,
    "disks made, domain defined",
    "virt-launcher to make the disks and define the domain",
)
GUEST_STARTED = HandoffKind("guest-started", "libvirt", 60, "QEMU runs the guest", "libvirt to start QEMU")
RUNNING = HandoffKind("running", "virt-handler", 10, "status reported", "virt-handler to report the VMI as Running")

#: In the order in which they normally happen.
HANDOFFS = (
    ACCEPTED,
    POD_CREATED,
    POD_STARTED,
    HANDED_OVER,
    NETWORK_READY,
    LAUNCHER_READY,
    DOMAIN_DEFINED,
    GUEST_STARTED,
    RUNNING,
)


def of_start(handoffs: Iterable[Handoff]) -> list[Handoff]:
    """Those of the first start; a move's name their Pod."""
    return [handoff for handoff in handoffs if not handoff.pod_uid]
