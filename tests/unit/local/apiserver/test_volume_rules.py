"""What of a claim may be changed."""

from __future__ import annotations

from typing import Any

import pytest

from virt_local.apiserver.builtins.volume_rules import check_claim


def claim(size: str, **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "c", "annotations": annotations},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, "volumeName": "v"},
        "status": {"phase": "Bound", "capacity": {"storage": "200Mi"}},
    }


@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        ("300Mi", "200Mi", False),
        ("300Mi", "199Mi", True),
        ("200Mi", "300Mi", False),
        # It got more than it asked for, and may go on asking for that.
        ("199Mi", "199Mi", False),
        ("199Mi", "198Mi", True),
    ],
)
def test_a_claim_does_not_shrink_below_what_it_has(before: str, after: str, refused: bool) -> None:
    assert bool(check_claim(claim(after, note="new"), claim(before))) is refused
