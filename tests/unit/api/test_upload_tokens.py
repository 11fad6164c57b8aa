"""Upload tokens and the places for uploads: both end."""

from __future__ import annotations

import pytest

from virt_api.uploads.places import Places
from virt_api.uploads.tokens import Tokens
from virt_core.runtime.clock import FakeClock


def test_a_namespace_does_not_take_all_places() -> None:
    places = Places(in_all=3, of_one=2)
    with places.one("a", "1"), places.one("a", "2"):
        with pytest.raises(Exception, match="too many disks"), places.one("a", "3"):
            pass
        with places.one("b", "4"), pytest.raises(Exception, match="too many disks"), places.one("c", "5"):
            pass
    with places.one("a", "1"):
        pass


def test_tokens_end() -> None:
    clock = FakeClock()
    tokens = Tokens(lambda: b"key", clock)
    word = tokens.issue("ns", "claim", "uid")
    assert (tokens.read(word).namespace, tokens.read(word).claim, tokens.read(word).uid) == ("ns", "claim", "uid")
    clock.step(299)
    tokens.read(word)
    clock.step(2)
    with pytest.raises(Exception, match="has expired"):
        tokens.read(word)
