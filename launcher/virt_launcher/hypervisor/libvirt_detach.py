"""Takes a device out of the running machine and waits for the guest to let it go."""

from __future__ import annotations

import threading
from typing import Any

import libvirt

from virt_launcher.errors import LauncherError

_ANSWERS = (libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED, libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVAL_FAILED)


def detach(connection: Any, domain: Any, alias: str, deadline_s: float) -> None:
    """The events are only hints; the machine itself knows whether the device is gone."""
    if not _has(domain, alias):
        return
    answered = threading.Event()
    numbers = [connection.domainEventRegisterAny(domain, event, _on_answer, (alias, answered)) for event in _ANSWERS]
    try:
        domain.detachDeviceAlias(alias, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        answered.wait(deadline_s)
    finally:
        for number in numbers:
            connection.domainEventDeregisterAny(number)
    if _has(domain, alias):
        late = f"the guest did not release it within {deadline_s:.0f} s"
        raise LauncherError("the guest refused to release it" if answered.is_set() else late)


def _on_answer(_connection: object, _domain: object, alias: str, opaque: tuple[str, threading.Event]) -> None:
    """In libvirt's own thread."""
    ours, answered = opaque
    if alias == ours:
        answered.set()


def _has(domain: Any, alias: str) -> bool:
    return f"<alias name='{alias}'/>" in domain.XMLDesc(0)
