"""Network cards of the node, which cannot move with a machine: pulled before it leaves, put back if it stays.

Where it arrives, it gets those of its new Pod, by the first sync there.
"""

from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree as ET

from virt_core.runtime.logs import get_logger
from virt_launcher.domain.codec import to_element
from virt_launcher.domain.devices import CARD_ALIAS, HostDev
from virt_launcher.domain.domain import from_xml
from virt_launcher.errors import AbortedError, LauncherError
from virt_launcher.hypervisor.ports import Hypervisor

log = get_logger(__name__)

#: How long the guest may take to let one go.
PULL_WITHIN_S = 30.0


class Cards:
    def __init__(self, hypervisor: Hypervisor) -> None:
        self._hypervisor = hypervisor
        self._pulled: list[HostDev] = []

    def pull(self, given_up: Callable[[], bool]) -> None:
        """Raises LauncherError; AbortedError if somebody no longer wants the move."""
        for card in from_xml(self._hypervisor.describe()).devices.hostdevs:
            if not (card.alias or "").startswith(CARD_ALIAS):
                continue
            if given_up():
                raise AbortedError("the move was given up while its network cards were pulled")
            try:
                self._hypervisor.detach_device(card.alias or "", PULL_WITHIN_S)
            except LauncherError as error:
                raise LauncherError(f"the network card {_name(card)} could not be pulled: {error}") from error
            self._pulled.append(card)
        if self._pulled and given_up():
            raise AbortedError("the move was given up after its network cards were pulled")

    def put_back(self) -> str:
        """What became of it, in words; nothing if all is as it was."""
        lost = []
        while self._pulled:
            card = self._pulled.pop(0)
            try:
                self._hypervisor.attach_device(ET.tostring(to_element(card, "hostdev"), encoding="unicode"))
            except LauncherError as error:
                log.error("a network card was not put back", card=_name(card), error=str(error))
                lost.append(f"the network card {_name(card)} was not put back: {error}")
        return "; ".join(lost)


def _name(card: HostDev) -> str:
    return (card.alias or "").removeprefix(CARD_ALIAS)
