"""Whether a guest without an agent shows any sign of life: what it sends, its address, what its console shows.

A machine runs as soon as QEMU does. A guest that found no disk, has a broken kernel or got no lease runs just as well,
and looks as good from outside. After a minute this says what was never seen; it is taken back as soon as it is.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from virt_core.apis.netplan import DEFAULT_VM_NETWORK_CIDR
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.runtime.logs import get_logger
from virt_core.runtime.record import record
from virt_launcher.errors import LauncherError
from virt_launcher.hypervisor.daemon import tail
from virt_launcher.hypervisor.ports import Facts, Hypervisor, State

log = get_logger(__name__)

#: A guest boots in less than that where the processor can virtualise.
FIRST_LOOK_S = 60.0
LOOK_EVERY_S = 15.0
_PANIC = re.compile(r"Kernel panic - not syncing[^\r\n]{0,160}")
#: What a kernel still prints after that. Who has printed more goes on.
_AFTERMATH = 600
_MAX_TABLE = 1 << 20
_COMPLETE = 0x2
#: The first address of a masqueraded guest's network is the Pod's, the second the guest's.
_GUEST = 2
_DISCARD_PORT = 9
_ANSWER_LOOKS = 30
_ANSWER_PAUSE_S = 0.1


@record(frozen=True, slots=True)
class Silence:
    """What was never seen of the guest: one CamelCase word, one sentence. Both empty when there is nothing to say."""

    reason: str = ""
    message: str = ""


NONE = Silence()
NOTHING_SENT = Silence(
    "NothingSent",
    "the guest has sent nothing on its network cards since it was started: it may have found no disk to boot from, or "
    "does not know its cards; its console may tell",
)
NO_LEASE = Silence(
    "NoLease",
    "the guest sends, but does not answer for the address that is kept for it: it has taken no lease; its network "
    "configuration may name another card",
)


def judge(sent: int | None, addressed: bool | None, console: str) -> Silence:
    """`sent`: packets of the guest, None without a card. `addressed`: whether it answers for its address, None when
    that cannot be known. Pure."""
    panic = _PANIC.search(console[-_AFTERMATH:])
    if panic is not None:
        words = "".join(letter for letter in panic[0] if letter.isprintable())
        return Silence("Panicked", f"the guest's console shows: {words}")
    if sent == 0:
        return NOTHING_SENT
    return NO_LEASE if addressed is False else NONE


def packets(stats: dict[str, Any]) -> int | None:
    sent = [value for key, value in stats.items() if re.fullmatch(r"net\.\d{1,3}\.tx\.pkts", key)]
    return sum(sent) if sent else None


def neighbours(table: str) -> frozenset[str]:
    """The addresses of /proc/net/arp for which somebody has answered."""
    rows = (line.split() for line in table.splitlines()[1:])
    return frozenset(row[0] for row in rows if len(row) >= 4 and _flags(row[2]) & _COMPLETE)


def kept_address(vmi: VirtualMachineInstance) -> str:
    """The IPv4 address that the Pod's DHCP server has for the guest; empty when the guest is not masqueraded."""
    cards = {nic.name for nic in vmi.spec.domain.devices.interfaces if nic.masquerade is not None}
    for network in vmi.spec.networks:
        if network.name in cards and network.pod is not None:
            from ipaddress import ip_network  # Most guests have an agent.

            return str(ip_network(network.pod.vm_network_cidr or DEFAULT_VM_NETWORK_CIDR, strict=False)[_GUEST])
    return ""


def knock(address: str) -> None:
    """An empty datagram, which nobody need take: for it, the Pod's kernel asks the guest whose address that is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(b"", (address, _DISCARD_PORT))


def _flags(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0


class LifeSigns:
    """`connected` says whether the guest's agent is there: then there is nothing to guess."""

    def __init__(
        self,
        hypervisor: Hypervisor,
        connected: Callable[[], bool],
        console: Path,
        on_news: Callable[[], None],
        *,
        network: Path = Path("/proc/net"),
        knock: Callable[[str], None] = knock,
    ) -> None:
        self._hypervisor, self._connected, self._console = hypervisor, connected, console
        self._on_news, self._network, self._knock = on_news, network, knock
        self._vmi: VirtualMachineInstance | None = None
        self.silence = NONE

    def begin(self, vmi: VirtualMachineInstance) -> None:
        """Looks from then on, in a thread of its own, until the guest was heard."""
        self._vmi = vmi
        threading.Thread(target=self._run, name="life-signs", daemon=True).start()

    def _run(self) -> None:
        time.sleep(FIRST_LOOK_S)
        while not self.look():
            time.sleep(LOOK_EVERY_S)

    def look(self) -> bool:
        """One look. True: nothing more is to be found out."""
        try:
            facts = self._hypervisor.facts()
            found = None if _stands(facts) else self._found()
        except LauncherError as error:
            log.debug("the guest's signs of life cannot be looked for now", error=str(error))
            return False
        if found is not None and found != self.silence:
            self.silence = found
            self._on_news()
        return found == NONE or facts is None or facts.state in (State.SHUTOFF, State.CRASHED)

    def _found(self) -> Silence:
        if self._connected():
            return NONE
        return judge(packets(self._hypervisor.stats()), self._addressed(), tail(self._console))

    def _addressed(self) -> bool | None:
        """Whether the guest answers for the address that is kept for it. A bridged one has another server's."""
        address = kept_address(self._vmi) if self._vmi is not None else ""
        if not address:
            return None
        try:
            self._knock(address)
        except OSError:
            return None  # The Pod has no IPv4.
        for _ in range(_ANSWER_LOOKS):
            if address in neighbours(_read(self._network / "arp")):
                return True
            time.sleep(_ANSWER_PAUSE_S)
        return False


def _stands(facts: Facts | None) -> bool:
    """A guest that stands still sends nothing, and that is no sign."""
    return facts is not None and facts.state is State.PAUSED


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_TABLE).decode(errors="replace")
    except OSError:
        return ""
