"""A start that does not read the whole processor back.

At each start libvirt asks QEMU for some 400 properties of the processor, one request each: more than all else that it
does. They are for the processors that libvirt itself puts together. decisions/0024 says what was checked.
"""

from __future__ import annotations

from virt_launcher.convert.context import Context
from virt_launcher.domain.domain import Domain
from virt_launcher.domain.machine import QemuCapability

#: What libvirt must think that QEMU cannot do.
_READS_BACK = "cpu-unavailable-features"
#: libvirt that can ask for all properties at once.
_ASKS_ONCE_SINCE = 11_008_000


def configure_quick_start(context: Context, domain: Domain) -> None:
    """After the processor and the features."""
    if context.libvirt_version < _ASKS_ONCE_SINCE and _is_never_compared(domain):
        domain.without_capabilities.append(QemuCapability(name=_READS_BACK))


def _is_never_compared(domain: Domain) -> bool:
    """Whether the processor is whatever there is, and nothing that somebody asks for has to be found in it."""
    cpu, features = domain.cpu, domain.features
    if domain.os.arch != "x86_64" or cpu is None or cpu.mode not in ("maximum", "host-passthrough") or cpu.features:
        return False
    return features is None or (features.hyperv is None and features.pvspinlock is None)
