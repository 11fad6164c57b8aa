"""Values that programs stumble over, and JSON text with what no JSON writer would write.

A `raw(…)` value is a text that stands for something which cannot be, or should not be, held as a value: two thousand
brackets, a number of 4,400 digits, NaN. It is put in when the document is written, so a recipe stays small and shrinks
well.
"""

from __future__ import annotations

import json
import re
from typing import Any

_RAW = "\0raw:"
_AGAIN = "\0again"
_DEPTH, _MANY, _LONG, _DIGITS = 2000, 3000, 70_000, 4400

RAW = {
    "deep-list": "[" * _DEPTH + "]" * _DEPTH,
    "deep-map": '{"a":' * _DEPTH + "1" + "}" * _DEPTH,
    "open-list": "[" * _DEPTH,
    "digits": "9" * _DIGITS,
    "negative-digits": "-" + "9" * _DIGITS,
    "digits-text": f'"{"9" * _DIGITS}"',
    "digits-quantity": f'"{"9" * _DIGITS}Gi"',
    "fraction": f"0.{'3' * _DIGITS}",
    "exponent": "1e99999",
    "long-exponent": f'"1e{"9" * _DIGITS}"',
    "nan": "NaN",
    "infinity": "-Infinity",
    "long-text": f'"{"a" * _LONG}"',
    "many-nulls": f"[{','.join(['null'] * _MANY)}]",
    "many-maps": f"[{','.join(['{}'] * _MANY)}]",
    "many-texts": json.dumps([str(n) for n in range(_MANY)]),
    "many-named": json.dumps([{"name": f"n{n}"} for n in range(_MANY)]),
    "many-keys": json.dumps({f"k{n}": "v" for n in range(_MANY)}),
    "surrogate": '"\\ud800"',
    "swapped-pair": '"\\udc00\\ud800"',
    "broken-escape": '"\\u12"',
    "control": '"\x01"',
    "nothing": "",
}
WORDS = (
    "",
    " ",
    "a",
    "name",
    "default",
    "0",
    "-1",
    "1e3",
    "128Mi",
    "1e999Gi",
    "0.0000000001",
    "+.5e-3",
    "500m",
    "99999999999999999999",
    "5m0s",
    "9" * 400 + "h",
    "1.2.3.4",
    "::1%eth0",
    "10.0.2.0/24",
    "10.0.2.0/99",
    "02:00:00:00:00:01",
    "../../etc/passwd",
    "/dev/kvm",
    "a/b/c",
    "%2e%2e%2f",
    "a\0b",
    "a\nb: c",
    "\u202eevil",
    "\U0001f600",
    "\u017f",
    "\u0130",
    "*",
    "(a+)+$",
    "{{ 7 }}",
    "true",
    "null",
    "2026-13-45T99:99:99Z",
    "0001-01-01T00:00:00Z",
    "aGVsbG8=",
    "====",
    "kubevirt.io/v1",
    "VirtualMachine",
    "é" * 200,
)
NUMBERS = (0, -0.0, 1, -1, 2, 255, 256, 65535, 65536, (1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 32) + 1)
NUMBERS += ((1 << 53) + 1, (1 << 63) - 1, 1 << 63, -(1 << 63) - 1, 1 << 64, 10**30, 0.1, -2.5, 1e308, 5e-324)


def raw(name: str) -> str:
    assert name in RAW
    return _RAW + name


def again(key: str) -> str:
    """The same key once more."""
    return key + _AGAIN


def text_of(document: Any) -> str:
    """As JSON, with the raw parts in their places."""
    written = json.dumps(document).replace(json.dumps(_AGAIN)[1:-1], "")
    return re.sub(r'"\\u0000raw:([a-z-]+)"', lambda match: RAW.get(match[1], '""'), written)
