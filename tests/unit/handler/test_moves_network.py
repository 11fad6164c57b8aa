"""Where a node waits for machines: at its usual address, or on the network that is kept for moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from virt_handler.moves import network
from virt_handler.moves.network import NotOnNetworkError, arrival_address

_TABLE = """\
fe800000000000000000000000000002 05 40 20 80 migration0
fd000000000000000000000000000009 02 40 00 80 eth0
fd000000000000000000000000000007 05 40 00 80 migration0
"""


def test_without_a_network_of_its_own_it_is_the_usual_one() -> None:
    assert arrival_address("10.1.2.3", "") == "10.1.2.3"


def test_an_interface_is_asked_for_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "INTERFACE", "lo")
    assert arrival_address("10.1.2.3", "moves") == "127.0.0.1"


def test_a_node_that_is_not_on_the_network_takes_no_machine() -> None:
    """It would be the wrong network, and nobody would notice."""
    with pytest.raises(NotOnNetworkError, match=r"migrations\.network is moves, but virt-handler has no address on"):
        arrival_address("10.1.2.3", "moves")


def test_an_address_of_ipv6_is_one_that_others_reach(tmp_path: Path) -> None:
    table = tmp_path / "if_inet6"
    table.write_text(_TABLE)
    assert network._ipv6("migration0", table) == "fd00::7"
    assert network._ipv6("other", table) == ""
    assert network._ipv6("migration0", tmp_path / "absent") == ""
