"""What a manifest may ask for and this launcher cannot do yet. Refusing by name beats starting a different machine.

virt-api refuses the same at the door; this is the second line, for VMIs that came in before.
"""

from __future__ import annotations

from virt_core.apis.base import to_plain
from virt_core.apis.support.paths import Paths
from virt_launcher.convert.context import ARCHITECTURES, Context
from virt_launcher.convert.not_built import NOT_BUILT
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError

#: libvirt that knows the PCI panic device.
_PVPANIC_SINCE = 9_001_000

_NOT_BUILT = Paths(NOT_BUILT)


def refuse_unsupported(context: Context, domain: Domain) -> None:
    del domain
    vmi = context.vmi
    if vmi.spec.architecture not in ARCHITECTURES:
        raise InvalidVMIError("spec.architecture", f"{vmi.spec.architecture!r} cannot run on this node; use amd64")
    for path, sentence in _NOT_BUILT.asked(to_plain(vmi.spec), "spec"):
        raise InvalidVMIError(path, sentence)
    _refuse_panic_models(context)


def _refuse_panic_models(context: Context) -> None:
    for index, device in enumerate(context.vmi.spec.domain.devices.panic_devices):
        if device.model == "pvpanic" and context.libvirt_version < _PVPANIC_SINCE:
            path = f"spec.domain.devices.panicDevices[{index}].model"
            raise InvalidVMIError(path, "pvpanic needs libvirt 9.1 or newer on the node; use isa")
