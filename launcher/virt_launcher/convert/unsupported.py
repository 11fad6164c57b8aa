"""What a manifest may ask for and this launcher cannot do yet. Refusing by name beats starting a different machine.

virt-api refuses the same at the door; this is the second line, for VMIs that came in before.
"""

from __future__ import annotations

from virt_core.apis.base import to_plain
from virt_core.apis.support.paths import Paths
from virt_launcher.convert.architecture import ARCHITECTURES
from virt_launcher.convert.context import Context
from virt_launcher.convert.disks import GRANULARITY_SINCE
from virt_launcher.convert.not_built import NOT_BUILT
from virt_launcher.domain.domain import Domain
from virt_launcher.errors import InvalidVMIError

#: What only a newer libvirt can do: since when, its path below the spec, what to do without it.
_NEEDS_LIBVIRT = (
    (9_001_000, "domain.devices.panicDevices[].model=pvpanic", "use isa"),
    (GRANULARITY_SINCE, "domain.devices.disks[].blockSize.custom.discardGranularity", "leave it out"),
    (11_000_000, "domain.features.hyperv.tlbflush.direct", "use tlbflush alone"),
    (11_000_000, "domain.features.hyperv.tlbflush.extended", "use tlbflush alone"),
)

_NOT_BUILT = Paths(NOT_BUILT)


def refuse_unsupported(context: Context, domain: Domain) -> None:
    del domain
    vmi = context.vmi
    _refuse_foreign(context)
    spec = to_plain(vmi.spec)
    for path, sentence in _NOT_BUILT.asked(spec, "spec"):
        raise InvalidVMIError(path, sentence)
    _refuse_what_is_newer(context.libvirt_version, spec)


def _refuse_foreign(context: Context) -> None:
    name = context.vmi.spec.architecture
    if name not in ARCHITECTURES:
        raise InvalidVMIError("spec.architecture", f"{name!r} is not one of {', '.join(filter(None, ARCHITECTURES))}")
    if context.foreign and not context.any_architecture:
        why = f"a machine of {name or 'amd64'} cannot run on this node of {context.node_architecture}"
        raise InvalidVMIError("spec.architecture", f"{why} without the feature gate CrossArchitectureVirtualization")


def _refuse_what_is_newer(libvirt_version: int, spec: object) -> None:
    newer = tuple((path, (since, else_)) for since, path, else_ in _NEEDS_LIBVIRT if libvirt_version < since)
    for path, (since, else_) in Paths(newer).asked(spec, "spec"):
        version = f"{since // 1_000_000}.{since // 1_000 % 1_000}"
        raise InvalidVMIError(path, f"this needs libvirt {version} or newer on the node; {else_}")
