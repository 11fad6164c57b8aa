"""The small languages: quantities, durations, label selectors, field selectors and JSON paths.

An input is one text; every reader gets it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz.hostile import WORDS
from fuzz.mutate import noisy
from fuzz.target import Run, Target
from hypothesis import strategies as st

from virt_api.problems import Problem
from virt_api.subresources.bodies import seconds
from virt_core.apis import quantity
from virt_core.apis.networks import decimal_octets
from virt_core.runtime.times import parse_rfc3339
from virt_local.apiserver.errors import ApiError
from virt_local.apiserver.jsonpath import BadPath, compile_path
from virt_local.apiserver.selectors import parse_labels

LABELS = {"a": "1", "b": "x", "key": "99"}
DOCUMENT = {"spec": {"a": [1, {"type": "Ready", "status": "True"}]}, "a": {"b": "c"}}
#: Each reader, and what it may raise.
READERS: tuple[tuple[Callable[[str], Any], tuple[type[Exception], ...]], ...] = (
    (quantity.canonical, (quantity.QuantityError,)),
    (quantity.parse_bytes, (quantity.QuantityError,)),
    (quantity.parse_milli, (quantity.QuantityError,)),
    (seconds, (Problem,)),
    (lambda text: parse_labels(text)(LABELS), (ApiError,)),
    (lambda text: compile_path(text)(DOCUMENT), (BadPath,)),
    (decimal_octets, ()),
    (parse_rfc3339, (ValueError,)),
)
SEEDS = (
    *WORDS,
    "12345678901234567890123456789.5Mi",
    "1e30",
    "-0.5",
    "9" * 4400 + "Gi",
    "0." + "0" * 4400 + "1",
    "1e" + "9" * 4400,
    "1h30m0.5s",
    "app=web,tier in (a,b),!old",
    "key>" + "9" * 4400,
    "key<-7",
    ".spec.a[0]",
    "{.spec.a[?(@.type=='Ready')].status}",
    ".a['b']",
    ".a[" + "9" * 4400 + "]",
    r".metadata.annotations.example\.com/key",
    "2026-01-01T00:00:00.123456Z",
    "010.001.1.1/24",
)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    data = draw(st.sampled_from(SEEDS)).encode("utf-8", "surrogatepass")
    return draw(noisy(data)) if draw(st.integers(0, 3)) else data


@contextmanager
def door(_directory: Path) -> Iterator[Run]:
    yield judge


def judge(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    for read, allowed in READERS:
        try:
            made = read(text)
        except allowed:
            continue
        assert not isinstance(made, str) or len(made) <= 4 * len(text) + 64


FAMILIES = {
    "digits": lambda n: b"9" * n,
    "parts": lambda n: b"1h" * n,
    "labels": lambda n: b"a=b," * n,
    "long-label": lambda n: b"a" * n + b"!",
    "path": lambda n: b".a" * n,
    "escapes": lambda n: b".a" + rb"\." * n,
    "brackets": lambda n: b"[" * n,
}

TARGET = Target("texts", texts(), door, 800, FAMILIES)
