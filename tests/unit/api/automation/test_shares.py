"""Places for calls: for each who asks and for all, given back whatever happens."""

from __future__ import annotations

import pytest

from virt_api.automation.failures import Failure
from virt_api.automation.shares import Places, Share, address_of


def test_nobody_gets_more_than_their_share() -> None:
    places = Places(Share(3, 2, "calls"))
    with places.one("bob"), places.one("bob"):
        with pytest.raises(Failure, match="bob has 2 calls under way"), places.one("bob"):
            pass
        with places.one("eve"), pytest.raises(Failure, match="there are 3 calls under way"), places.one("ann"):
            pass
    with places.one("bob"), places.one("bob"):
        pass


def test_a_call_that_fails_gives_its_place_back() -> None:
    places = Places(Share(1, 1, "calls"))
    with pytest.raises(ValueError, match="any"), places.one("bob"):
        raise ValueError("any")
    with places.one("eve"):
        pass


@pytest.mark.parametrize(
    ("peer", "address"),
    [("ipv4:10.1.2.3:4567", "10.1.2.3"), ("ipv6:%5Bfe80::1%5D:4567", "fe80::1"), ("unix:", "unix:")],
)
def test_an_address_is_the_same_on_every_connection(peer: str, address: str) -> None:
    assert address_of(peer) == address
