"""The link of a network card follows the VM's template while the machine runs, as a cable that is pulled. Pure."""

from __future__ import annotations

from typing import Any

from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec
from virt_core.kube.patch import op, pointer

_ABSENT = "absent"
_UP = "up"


def operations(wanted: VirtualMachineInstanceSpec, vmi: VirtualMachineInstance) -> list[dict[str, Any]]:
    states = {nic.name: nic.state or _UP for nic in wanted.domain.devices.interfaces}
    found = []
    for index, nic in enumerate(vmi.spec.domain.devices.interfaces):
        want, have = states.get(nic.name, _ABSENT), nic.state or _UP
        if _ABSENT not in (want, have) and want != have:
            found.append(op.add(pointer("spec", "domain", "devices", "interfaces", str(index), "state"), want))
    return found


def without_links(devices: dict[str, Any]) -> None:
    """Takes out of a spec's devices what `operations` takes care of."""
    for nic in devices.get("interfaces") or []:
        if nic.get("state") != _ABSENT:
            nic.pop("state", None)
