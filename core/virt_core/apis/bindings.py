"""How a NIC is bound to its network: which choices there are, and what each needs of every part. Pure.

`TABLE` is the only place that says so: admission, preferences, virt-controller, virt-handler, virt-netsetup and
virt-launcher ask it, and docs/guide/bindings.md shows it. No struct is imported here: virt-netsetup and virt-launcher,
which start once for each VM, need only the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from virt_core.apis.interfaces import Interface

BRIDGE = "bridge"
MASQUERADE = "masquerade"
SRIOV = "sriov"
PASST = "passtBinding"
PLUGIN = "binding"
SLIRP = "slirp"
#: How a plugin's NIC gets to the machine: by a TAP that its CNI plugin made, by one that virt-netsetup makes, or by
#: what its sidecar writes into the domain.
TAP = "tap"
MANAGED_TAP = "managedTap"
SIDECAR = "sidecar"

#: What stands in the domain for a NIC.
AS_TAP, AS_PASST, AS_DEVICE, AS_SIDECAR_SAYS = "tap", "passt", "device", "sidecar"
#: Whether a machine with such a NIC moves: always; but for the Pod network; if its plugin says how; never.
MOVES, MOVES_ELSEWHERE, MOVES_IF_TOLD, STAYS = "moves", "elsewhere", "if told", "stays"

_MIB = 1 << 20


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """What one binding needs."""

    name: str
    #: Admission: the gate that it is behind. Admission and preferences: whether it is for the Pod network alone.
    gate: str = ""
    pod_network_only: bool = False
    #: Admission: whether it is we who answer the guest's DHCP, with the options of the VMI.
    answers_dhcp: bool = False
    #: Admission: whether a NIC may come and go, on a secondary network, while the machine runs.
    pluggable: bool = False
    #: Pod: whether the launcher opens a TAP, and bytes of memory beside the machine's own.
    opens_tap: bool = False
    memory: int = 0
    #: virt-netsetup: whether it is asked, under the binding's name; if only for what the Pod's interface is.
    wired: bool = True
    #: Domain: what stands there, and whether it can have a queue for each vCPU.
    device: str = AS_TAP
    multiqueue: bool = False
    #: Migration.
    moves: str = MOVES


TABLE: Mapping[str, Binding] = MappingProxyType(
    {
        row.name: row
        for row in (
            Binding(name=BRIDGE, answers_dhcp=True, pluggable=True, opens_tap=True, multiqueue=True,
                    moves=MOVES_ELSEWHERE),
            Binding(name=MASQUERADE, pod_network_only=True, answers_dhcp=True, opens_tap=True, multiqueue=True),
            Binding(name=SRIOV, wired=False, device=AS_DEVICE),
            # Its own 20 Mi, and a socket in the kernel for each port and protocol, at 2 Ki, when it takes all ports.
            Binding(name=PASST, gate="PasstBinding", pod_network_only=True, memory=250 * _MIB, device=AS_PASST),
            Binding(name=TAP, opens_tap=True, multiqueue=True, moves=MOVES_IF_TOLD),
            Binding(name=MANAGED_TAP, opens_tap=True, multiqueue=True, moves=MOVES_IF_TOLD),
            Binding(name=SIDECAR, device=AS_SIDECAR_SAYS, moves=MOVES_IF_TOLD),
        )
    }
)  # fmt: skip

#: Field of an interface → what the API calls the binding.
_CHOICES = {"bridge": BRIDGE, "masquerade": MASQUERADE, "sriov": SRIOV, "passt_binding": PASST, "binding": PLUGIN}
BINDINGS = tuple(_CHOICES.values())
#: Those of which virt-netsetup makes every station between Pod and guest.
WIRED = tuple(row.name for row in TABLE.values() if row.answers_dhcp)
#: Those for which nothing is wired in the Pod: the guest has a device of the node.
DEVICES = tuple(row.name for row in TABLE.values() if row.device == AS_DEVICE)
#: Named so that they can be refused with a reason: what is gone, and what to use instead.
REMOVED: Mapping[str, str] = MappingProxyType(
    {
        SLIRP: "use masquerade, or passtBinding where the guest shall have the Pod's address",
        "macvtap": "use bridge, or a binding plugin of the cluster's with the domainAttachmentType tap",
        "passt": "use passtBinding",
    }
)
#: What the cluster may give to a NIC that it adds; slirp is understood, and the rules refuse it.
DEFAULTS = (BRIDGE, SLIRP, MASQUERADE)
#: What a plugin may say of its domainAttachmentType; a plugin that says nothing leaves the domain to its sidecar.
ATTACHMENTS: Mapping[str, str] = MappingProxyType({"": SIDECAR, "tap": TAP, "managedTap": MANAGED_TAP})


def chosen(interface: Interface) -> list[str]:
    """Every binding that it names; one is right."""
    return [binding for field, binding in _CHOICES.items() if getattr(interface, field) is not None]


def removed(interface: Interface) -> list[str]:
    """What it names and nothing supports any more."""
    return [binding for binding in REMOVED if getattr(interface, binding) is not None]


def binding_of(interface: Interface) -> str:
    """Its binding as the API calls it; empty when it has none or several."""
    found = chosen(interface)
    return found[0] if len(found) == 1 else ""


def row_of(name: str, attachment: str = "") -> Binding | None:
    """The table's row for a binding of the API; for that of a plugin, by the plugin's domainAttachmentType."""
    return TABLE.get(ATTACHMENTS.get(attachment, "") if name == PLUGIN else name)
