"""Quantities are read exactly and written as Kubernetes writes them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virt_core.apis.quantity import (
    QuantityError,
    canonical,
    format_bytes,
    format_decimal,
    parse_bytes,
    parse_milli,
    parse_quantity,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", "0"), ("12", "12"), (7, "7"), (0.5, "0.5"), ("1.5", "1.5"), (".5", "0.5"), ("5.", "5"), ("+3", "3"),
        ("-1Mi", "-1048576"), ("1Ki", "1024"), ("1.5Gi", "1610612736"), ("3Ei", str(3 << 60)), ("1k", "1000"),
        ("1E", "1000000000000000000"), ("500m", "0.5"), ("7u", "0.000007"), ("9n", "0.000000009"), ("1e3", "1000"),
        ("1E3", "1000"), ("12e-3", "0.012"), ("0.1", "0.1"),
    ],
)  # fmt: skip
def test_parse_is_exact(text: str | float, value: str) -> None:
    assert parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize(
    "text", ["", "lots", "1 Gi", "1KI", "1kb", "Mi", "1e", "1e400", "--1", "1.2.3", "\u0661", "0x10", "1Mi\n"]
)
def test_what_is_no_quantity_is_named(text: str) -> None:
    with pytest.raises(QuantityError, match=r"quantity|suffix|exponent"):
        parse_quantity(text)


def test_a_boolean_is_no_quantity() -> None:
    with pytest.raises(QuantityError):
        parse_quantity(True)


def test_fractions_of_a_byte_round_up() -> None:
    assert parse_bytes("100m") == 1
    assert parse_bytes("1500m") == 2
    assert parse_milli("0.0001") == 1
    assert parse_milli("2") == 2000


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("128Mi", "128Mi"), ("1024Mi", "1Gi"), ("1.5Gi", "1536Mi"), ("1000", "1k"), ("0.5", "500m"), (1, "1"),
        ("1e3", "1e3"), ("12000000", "12M"), ("1024", "1024"), ("0", "0"), ("100e6", "100e6"), ("-1Mi", "-1Mi"),
        ("0Mi", "0"),
    ],
)  # fmt: skip
def test_canonical_form(text: str | int, stored: str) -> None:
    assert canonical(text) == stored


@given(st.integers(min_value=0, max_value=1 << 62))
def test_formatted_bytes_read_back(value: int) -> None:
    assert parse_bytes(format_bytes(value)) == value


@given(st.decimals(min_value=0, max_value=10**15, places=6))
def test_formatted_decimals_read_back(value: Decimal) -> None:
    assert parse_quantity(format_decimal(value)) == value
