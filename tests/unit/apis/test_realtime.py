"""Which vCPUs a mask names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virt_core.apis.base import from_plain
from virt_core.apis.realtime import is_mask, realtime_vcpus
from virt_core.apis.vmi import VirtualMachineInstance


def chosen(mask: str | None, vcpus: int = 4) -> set[int]:
    realtime = {} if mask is None else {"realtime": {"mask": mask}}
    plain = {"spec": {"domain": {"devices": {}, "cpu": {"cores": vcpus, **realtime}}}}
    return set(realtime_vcpus(from_plain(plain, VirtualMachineInstance), vcpus))


@pytest.mark.parametrize(
    ("mask", "vcpus"),
    [
        (None, set()),
        ("", {0, 1, 2, 3}),
        (" ", {0, 1, 2, 3}),
        ("0", {0}),
        ("0-2", {0, 1, 2}),
        ("0-3,^1", {0, 2, 3}),
        ("0-3,^1-2", {0, 3}),
        ("^1,0-1", {0, 1}),
        ("1, 3", {1, 3}),
        ("2-99999", {2, 3}),
        ("7", set()),
    ],
)
def test_a_mask_names_vcpus(mask: str | None, vcpus: set[int]) -> None:
    assert chosen(mask) == vcpus
    assert is_mask(mask or "")


@pytest.mark.parametrize("mask", ["all", "0-", "-1", "3-1", "0,,1", "^", "0x1", "1.5", "999999", "0\n,", "²"])
def test_an_odd_mask_is_refused(mask: str) -> None:
    assert not is_mask(mask)
    with pytest.raises(ValueError, match="is neither a number of a vCPU"):
        chosen(mask)


@given(st.text(alphabet="0123456789-^, x", max_size=20))
def test_whatever_is_let_in_can_be_read(mask: str) -> None:
    if is_mask(mask):
        assert chosen(mask) <= {0, 1, 2, 3}
