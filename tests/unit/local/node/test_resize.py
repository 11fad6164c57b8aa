"""Whether a node has room for what a running Pod asks for now, and what it says when it has not."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from virt_core.apis.base import from_plain
from virt_core.apis.podparts import ResourceRequirements
from virt_core.apis.pods import Pod
from virt_local.node.pods.resize import decide, differs

NODE = {"cpu": Decimal(2), "memory": Decimal(4 << 30)}


def pod(**requests: str) -> Pod:
    containers = [{"name": "a", "resources": {"requests": requests}}]
    return from_plain({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": containers}}, Pod)


@pytest.mark.parametrize(
    ("asks", "reason", "words"),
    [
        ({"cpu": "1500m", "memory": "2Gi"}, "", ""),
        ({"cpu": "3"}, "Infeasible", "cpu, requested: 3, 2 in all"),
        ({"memory": "5Gi"}, "Infeasible", "memory, requested: 5Gi, 4Gi in all"),
        ({"cpu": "1600m"}, "Deferred", "cpu, requested: 1.6, used: 0.5, capacity: 2"),
        ({"memory": "4Gi"}, "Deferred", "memory, requested: 4Gi, used: 1Gi, capacity: 4Gi"),
    ],
)
def test_room_is_what_others_leave(asks: dict[str, str], reason: str, words: str) -> None:
    held = decide(pod(**asks), [pod(cpu="300m", memory="512Mi"), pod(cpu="200m", memory="512Mi")], NODE)
    assert (held.reason if held else "") == reason
    assert words in (held.message if held else "")


@pytest.mark.parametrize(
    ("asks", "has", "expected"),
    [
        ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1000m"}}, False),
        ({"requests": {"cpu": "1"}}, {"requests": {"cpu": "2"}}, True),
        ({"limits": {"memory": "1Gi"}}, {}, True),
        ({"limits": {"a/b": "1"}}, {}, False),
        (None, None, False),
    ],
)
def test_amounts_are_compared_and_not_their_spelling(asks: Any, has: Any, expected: bool) -> None:
    first, second = (from_plain(each, ResourceRequirements) if each is not None else None for each in (asks, has))
    assert differs(first, second) is expected
