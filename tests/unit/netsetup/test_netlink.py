"""The binary side: what goes to the kernel and what comes back."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virt_netsetup import netlink as nl


@given(st.dictionaries(st.integers(1, 100), st.binary(max_size=50), max_size=8))
def test_attributes_survive_the_way_there_and_back(values: dict[int, bytes]) -> None:
    data = b"".join(nl.attribute(kind, value) for kind, value in values.items())
    assert len(data) % 4 == 0
    assert nl.attributes(data) == values


@given(st.binary(max_size=200))
def test_nonsense_from_the_kernel_does_not_hang_the_parser(data: bytes) -> None:
    nl.attributes(data)


def test_nested_attributes_lose_their_flag_on_the_way_back() -> None:
    data = nl.nested(18, nl.text(1, "bridge"))
    inner = nl.attributes(nl.attributes(data)[18])
    assert inner[1] == b"bridge\0"


def error_message(code: int, request: bytes, explanation: str = "") -> bytes:
    body = struct.pack("=i", -code) + request
    return body + (nl.text(nl.NLMSGERR_ATTR_MSG, explanation) if explanation else b"")


def test_errors_carry_the_kernels_own_words() -> None:
    header = struct.pack("=IHHII", 16, 16, 5, 1, 0)
    with pytest.raises(OSError, match="Unknown device type") as caught:
        nl._raise_if_failed(error_message(95, header, "Unknown device type"), nl.NLM_F_ACK_TLVS)
    assert caught.value.errno == 95
    with pytest.raises(OSError, match="File exists"):
        nl._raise_if_failed(error_message(17, header), 0)
    nl._raise_if_failed(error_message(0, header), 0)
