"""How a NIC is bound to its network: the one place that reads the choice out of an interface. Pure.

No struct is imported here: virt-netsetup and virt-launcher, which start once for each VM, need only the names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from virt_core.apis.interfaces import Interface

BRIDGE = "bridge"
MASQUERADE = "masquerade"
SRIOV = "sriov"
PASST = "passtBinding"
PLUGIN = "binding"
SLIRP = "slirp"

#: Field of an interface → what the API calls the binding.
_CHOICES = {"bridge": BRIDGE, "masquerade": MASQUERADE, "sriov": SRIOV, "passt_binding": PASST, "binding": PLUGIN}
BINDINGS = tuple(_CHOICES.values())
#: Named so that they can be refused with a reason.
REMOVED = (SLIRP, "macvtap", "passt")
#: Those that virt-netsetup makes a TAP for.
WIRED = (BRIDGE, MASQUERADE)
#: Those for which nothing is wired in the Pod: the guest has a device of the node.
DEVICES = (SRIOV,)
#: What the cluster may give to a NIC that it adds; slirp is understood, and the rules refuse it.
DEFAULTS = (BRIDGE, SLIRP, MASQUERADE)


def chosen(interface: Interface) -> list[str]:
    """Every binding that it names; one is right."""
    return [binding for field, binding in _CHOICES.items() if getattr(interface, field) is not None]


def removed(interface: Interface) -> list[str]:
    """What it names and nothing supports any more."""
    return [binding for binding in REMOVED if getattr(interface, binding) is not None]


def binding_of(interface: Interface) -> str:
    """Its binding; empty when it has none or several."""
    found = chosen(interface)
    return found[0] if len(found) == 1 else ""
