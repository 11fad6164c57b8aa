"""Kubernetes resource quantities ("128Mi", "500m", "1e3"), read exactly and written in canonical form.

Decimal arithmetic, never floats: 0.1 of a CPU must stay 100m.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Context, Decimal
from typing import Annotated, Any

from msgspec import Meta

_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": _PATTERN,
    "x-kubernetes-int-or-string": True,
}

#: A quantity on the wire. People write bare numbers too; read one with `parse_quantity`, never by hand.
Quantity = Annotated[str | int | float, Meta(extra_json_schema=_SCHEMA)]
#: A number or a text such as "25%".
IntOrString = Annotated[
    int | str,
    Meta(extra_json_schema={"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}),
]

BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
DECIMAL_EXPONENT = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

_TEXT = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(.*)", re.ASCII)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)", re.ASCII)
_EXACT = Context(prec=60)
_MAX_EXPONENT = 30
#: No quantity that means something is longer, and reading one takes more time than its length suggests.
_MAX_LENGTH = 64
_SHOWN = 24


class QuantityError(ValueError):
    """The text is no quantity; says what was expected."""


def parse_quantity(value: str | int | float) -> Decimal:
    """The exact value: "1Ki" → 1024, "500m" → 0.5. Raises QuantityError."""
    if isinstance(value, bool):
        raise QuantityError(f"{value!r} is not a quantity")
    text = _text_of(value)
    match = _TEXT.fullmatch(text)
    if match is None:
        raise QuantityError(f"{text!r} is not a quantity: expected a number with an optional suffix such as Mi, G or m")
    sign, digits, suffix = match.groups()
    number = Decimal(digits if sign != "-" else "-" + digits)
    return _EXACT.multiply(number, _multiplier(suffix, text))


def _text_of(value: str | int | float) -> str:
    """Raises QuantityError."""
    if isinstance(value, int) and value.bit_length() > 4 * _MAX_LENGTH:
        raise QuantityError(f"a number of {value.bit_length()} bits is not a quantity")
    text = value if isinstance(value, str) else repr(value)
    if len(text) > _MAX_LENGTH:
        raise QuantityError(f"{text[:_SHOWN]!r}… has {len(text)} characters: a quantity has at most {_MAX_LENGTH}")
    return text


def _multiplier(suffix: str, text: str) -> Decimal:
    if suffix in BINARY:
        return Decimal(BINARY[suffix])
    if suffix in DECIMAL_EXPONENT:
        return Decimal(1).scaleb(DECIMAL_EXPONENT[suffix])
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None:
        raise QuantityError(
            f"{text!r} has the unknown suffix {suffix!r}: use Ki, Mi, Gi, Ti, Pi, Ei, k, M, G, T, P, E, m, u or n"
        )
    if abs(int(exponent.group(1))) > _MAX_EXPONENT:
        raise QuantityError(f"{text!r} has an exponent beyond {_MAX_EXPONENT}")
    return Decimal(1).scaleb(int(exponent.group(1)))


def parse_int(value: str | int | float) -> int:
    """A whole number, rounded up as Kubernetes does: bytes of memory, vCPUs of a CPU limit."""
    return int(parse_quantity(value).to_integral_value(rounding=ROUND_CEILING))


def parse_bytes(value: str | int | float) -> int:
    """A size in bytes."""
    return parse_int(value)


def parse_milli(value: str | int | float) -> int:
    """Thousandths, rounded up: milli CPUs."""
    return int(_EXACT.multiply(parse_quantity(value), Decimal(1000)).to_integral_value(rounding=ROUND_CEILING))


def format_bytes(value: int) -> str:
    """The canonical binary form: 134217728 → "128Mi", 1000 → "1000"."""
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        if value and value % BINARY[suffix] == 0:
            return f"{value // BINARY[suffix]}{suffix}"
    return str(value)


def format_decimal(value: Decimal | int) -> str:
    """The canonical decimal form, the largest suffix that leaves a whole number: 0.5 → "500m", 3000 → "3k"."""
    nano = int(_EXACT.multiply(Decimal(value), Decimal(10**9)).to_integral_value(rounding=ROUND_CEILING))
    if nano == 0:
        return "0"
    for suffix in ("E", "P", "T", "G", "M", "k", "", "m", "u"):
        unit = 10 ** (DECIMAL_EXPONENT[suffix] + 9)
        if nano % unit == 0:
            return f"{nano // unit}{suffix}"
    return f"{nano}n"


def format_exponent(value: Decimal) -> str:
    """The canonical form of what was written with an exponent: a multiple of three, "12e6"."""
    plain = format_decimal(value)
    suffix = plain.lstrip("-0123456789")
    exponent = DECIMAL_EXPONENT[suffix]
    return f"{plain.removesuffix(suffix)}e{exponent}" if exponent else plain


def canonical(value: str | int | float) -> str:
    """The text that Kubernetes would store; the family of suffixes (binary, decimal, exponent) stays."""
    number = parse_quantity(value)
    text = value if isinstance(value, str) else repr(value)
    if text.endswith("i"):
        if number != number.to_integral_value():
            return format_decimal(number) if abs(number) < 1024 else format_bytes(parse_int(value))
        return format_bytes(int(number)) if abs(number) >= 1024 else format_decimal(number)
    if _EXPONENT.search(text):
        return format_exponent(number)
    return format_decimal(number)


def readable(count: float) -> str:
    """`1.5 GiB` of a number of bytes, for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
