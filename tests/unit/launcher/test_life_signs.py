"""What is said of a guest without an agent: only what was never seen, and no longer than that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.launcher.parts import Parts, make_parts, plain_vmi
from virt_core.apis.base import from_plain
from virt_core.apis.vmi import VirtualMachineInstance
from virt_launcher.hypervisor.ports import State
from virt_launcher.machine import life_signs
from virt_launcher.machine.life_signs import (
    NO_LEASE,
    NONE,
    NOTHING_SENT,
    LifeSigns,
    judge,
    kept_address,
    neighbours,
    packets,
)
from virt_launcher.machine.manager import SyncOptions
from virt_launcher.service.messages import domain_message

MAC = "02:00:00:aa:bb:01"
HEADER = "IP address       HW type     Flags       HW address            Mask     Device\n"
PANIC = "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)"


@pytest.mark.parametrize(
    ("sent", "addressed", "console", "said"),
    [
        (None, None, "", NONE),
        (None, None, "login:", NONE),
        (0, None, "", NOTHING_SENT),
        (0, False, "", NOTHING_SENT),
        (5, False, "", NO_LEASE),
        (5, None, "", NONE),
        (5, True, "", NONE),
        (5, True, f"{PANIC}\n" + "goes on\n" * 200, NONE),
    ],
)
def test_what_is_said(sent: int | None, addressed: bool | None, console: str, said: Any) -> None:
    assert judge(sent, addressed, console) == said


def test_a_panic_is_told_in_the_guests_words_but_not_in_all_of_them() -> None:
    found = judge(0, None, f"boot\r\n[ 1.0] {PANIC}\r\n[ 1.1] ---[ end {PANIC} ]---\r\n")
    assert found.reason == "Panicked"
    assert found.message == f"the guest's console shows: {PANIC}"
    nasty = judge(0, None, "Kernel panic - not syncing\x1b[2J\x00" + "x" * 500)
    assert nasty.message.isprintable()
    assert len(nasty.message) < 300


def test_the_tables_of_the_kernel() -> None:
    rows = f"10.0.2.2  0x1  0x2  {MAC.upper()}  *  k6t-eth0\n10.0.2.9  0x1  0x0  02:00:00:00:00:09  *  k6t-eth0\n"
    assert neighbours(HEADER + rows) == {"10.0.2.2"}
    assert neighbours(HEADER + "x\nx x zz x\n") == frozenset()
    assert packets({"net.0.tx.pkts": 1, "net.1.tx.pkts": 2, "net.0.rx.pkts": 9}) == 3
    assert packets({"cpu.time": 1}) is None


def masqueraded(cidr: str = "") -> VirtualMachineInstance:
    domain = {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}}
    network = {"name": "default", "pod": {"vmNetworkCIDR": cidr} if cidr else {}}
    return from_plain({"spec": {"domain": domain, "networks": [network]}}, VirtualMachineInstance)


def test_the_address_that_is_kept_for_a_guest() -> None:
    assert kept_address(masqueraded()) == "10.0.2.2"
    assert kept_address(masqueraded("10.9.0.0/16")) == "10.9.0.2"
    assert kept_address(VirtualMachineInstance()) == ""


def test_a_pod_without_ipv4_says_nothing_of_leases(rig: Rig) -> None:
    def unreachable(_address: str) -> None:
        raise OSError("Network is unreachable")

    rig.sent = 3  # type: ignore[attr-defined]
    rig.signs._knock = unreachable
    assert rig.signs.look()
    assert rig.signs.silence == NONE


class Rig:
    def __init__(self, parts: Parts, root: Path) -> None:
        self.parts, self.root, self.agent, self.news = parts, root, False, 0
        (root / "arp").write_text(HEADER)
        self.knocked: list[str] = []
        self.signs = LifeSigns(
            parts.hypervisor, lambda: self.agent, root / "console", self._poke, network=root, knock=self.knocked.append
        )
        self.signs._vmi = masqueraded()
        parts.manager.silence = lambda: self.signs.silence

    def _poke(self) -> None:
        self.news += 1


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    parts = make_parts(tmp_path)
    parts.manager.sync(plain_vmi(), SyncOptions())
    monkeypatch.setattr(parts.hypervisor, "stats", lambda: {"net.0.tx.pkts": rig.sent})
    monkeypatch.setattr(life_signs, "_ANSWER_PAUSE_S", 0.0)
    rig = Rig(parts, tmp_path)
    rig.sent = 0  # type: ignore[attr-defined]
    return rig


def test_from_silence_to_an_address(rig: Rig) -> None:
    assert not rig.signs.look()
    assert rig.signs.silence == NOTHING_SENT
    rig.sent = 3  # type: ignore[attr-defined]
    assert not rig.signs.look()
    assert not rig.signs.look()
    assert (rig.signs.silence, rig.news) == (NO_LEASE, 2)
    assert set(rig.knocked) == {"10.0.2.2"}
    (rig.root / "arp").write_text(f"{HEADER}10.0.2.2  0x1  0x2  {MAC}  *  k6t-eth0\n")
    assert rig.signs.look()
    assert (rig.signs.silence, rig.news) == (NONE, 3)


def test_a_paused_guest_is_not_blamed(rig: Rig) -> None:
    rig.parts.hypervisor.becomes(State.PAUSED, "User")
    assert not rig.signs.look()
    assert (rig.signs.silence, rig.news) == (NONE, 0)


def test_an_agent_says_enough_and_an_end_too(rig: Rig) -> None:
    rig.agent = True
    assert rig.signs.look()
    rig.agent = False
    rig.parts.hypervisor.becomes(State.SHUTOFF, "Shutdown")
    assert rig.signs.look()


def test_virt_handler_hears_of_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rig.signs.silence = NOTHING_SENT
    assert domain_message(rig.parts.manager.view()).silence.reason == "NothingSent"
    rig.signs.silence = NONE
    assert not domain_message(rig.parts.manager.view()).HasField("silence")
