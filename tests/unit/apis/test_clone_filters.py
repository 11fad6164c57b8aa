"""Which labels and annotations a clone takes over, and which filters are taken at all."""

from __future__ import annotations

import subprocess
import sys

import pytest

from virt_core.apis.clonefilters import LONGEST, dropped, fault_of

KEYS = ["app", "app/tier", "some/app", "kubevirt.io/vm"]


@pytest.mark.parametrize(
    ("filters", "gone"),
    [
        (None, []),
        ([], KEYS),
        (["*"], []),
        (["app"], ["kubevirt.io/vm"]),
        (["^app$"], ["app/tier", "kubevirt.io/vm", "some/app"]),
        (["^app/.*"], ["app", "kubevirt.io/vm", "some/app"]),
        (["*", "!app/*"], ["app", "app/tier", "some/app"]),  # "app" and any number of slashes, as in Go
        (["*", "!^app/"], ["app/tier"]),
        (["!app"], KEYS),
        (["app", "!app"], KEYS),
        (["kubevirt\\.io"], ["app", "app/tier", "some/app"]),
        (["kubevirt.io/v*"], ["app", "app/tier", "some/app"]),
    ],
)
def test_what_stays_behind(filters: list[str] | None, gone: list[str]) -> None:
    assert dropped(KEYS, filters) == sorted(gone)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must name a key"),
        ("!", "must name a key"),
        ("a!", "'!' can only"),
        ("a*b", "'*' can only"),
        ("**", "'*' can only"),
        ("a" * (LONGEST + 1), "at most"),
        ("(a+)+$", "letters"),
        ("[a-z]", "letters"),
        ("a{9}", "letters"),
        ("a|b", "letters"),
        ("\\d", "letters"),
        ("a\\", "letters"),
        ("a$b", "letters"),
        ("^*", "letters"),
        ("^", "letters"),
        ("a\n", "letters"),
        ("ä", "letters"),
    ],
)
def test_what_is_no_filter(text: str, said: str) -> None:
    assert said in fault_of(text)
    assert dropped(["a"], [text]) == ["a"]
    assert dropped(["a"], ["*", text]) == []


@pytest.mark.parametrize("text", ["*", "!*", "a", "a*", "!a.b/c-d_e*", "^a$", "a\\.b", "!^a.*"])
def test_what_is_one(text: str) -> None:
    assert fault_of(text) == ""


def test_the_worst_filter_comes_to_an_end() -> None:
    """It is tried where the machines of all users are kept: one that runs away would never come back."""
    code = (
        "from virt_core.apis.clonefilters import LONGEST, MOST, dropped;"
        "worst = ['.' * (LONGEST - 1) + '*', '!' + 'a.' * 150 + 'b*'] * (MOST // 2);"
        "print(len(dropped(['a' * n for n in range(317)], worst)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "317\n"
