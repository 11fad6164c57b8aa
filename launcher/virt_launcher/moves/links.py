"""After a move the guest sees its link go and come, where the binding plugin of a NIC asks for that: it then asks its
network for an address again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from xml.etree import ElementTree

from virt_core.runtime.logs import get_logger
from virt_launcher.converge.kinds import OUR_ALIAS
from virt_launcher.convert.context import Attachment
from virt_launcher.domain.codec import to_element
from virt_launcher.domain.devices import Interface
from virt_launcher.domain.domain import from_xml
from virt_launcher.errors import LauncherError
from virt_launcher.hypervisor.ports import Hypervisor

log = get_logger(__name__)

#: Long enough for a guest to notice that has just arrived and shares its processor with others.
_PAUSE_S = 0.5
_ATTEMPTS, _RETRY_S = 10, 1.0
_UP, _DOWN = "up", "down"


def to_refresh(interfaces: list[Interface], attachments: Mapping[str, Attachment]) -> list[Interface]:
    """Those whose plugin asks for it. A link that its owner took down stays down."""
    wanted = {f"{OUR_ALIAS}{name}" for name, attachment in attachments.items() if attachment.refresh_link}
    return [nic for nic in interfaces if nic.alias in wanted and nic.link != _DOWN]


class Links:
    def __init__(
        self,
        hypervisor: Hypervisor,
        attachments: Mapping[str, Attachment],
        modifying: Callable[[], AbstractContextManager[None]],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._hypervisor, self._attachments, self._modifying, self._sleep = hypervisor, attachments, modifying, sleep

    def begin(self) -> None:
        """Returns at once: it is libvirt's own thread that tells of the arrival."""
        threading.Thread(target=self.refresh, name="links", daemon=True).start()

    def refresh(self) -> None:
        try:
            live = from_xml(self._hypervisor.describe()).devices.interfaces
            for nic in to_refresh(live, self._attachments):
                with self._modifying():  # Else who brings the machine in line with its spec takes the link up at once.
                    self._blink(nic)
        except LauncherError as error:
            log.warning("the guest did not see its link go and come", error=str(error))

    def _blink(self, nic: Interface) -> None:
        try:
            self._set(nic, _DOWN)
            self._sleep(_PAUSE_S)
        finally:
            self._up(nic)
        log.info("the guest saw its link go and come", nic=nic.alias)

    def _up(self, nic: Interface) -> None:
        """A guest whose link stayed down would be worse off than one that kept its old address."""
        for _ in range(_ATTEMPTS):
            try:
                return self._set(nic, _UP)
            except LauncherError as error:
                problem = error
            self._sleep(_RETRY_S)
        raise problem

    def _set(self, nic: Interface, state: str) -> None:
        element = to_element(replace(nic, link=state), "interface")
        self._hypervisor.update_device(ElementTree.tostring(element, encoding="unicode"))
