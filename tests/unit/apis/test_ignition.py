"""What the annotation with the data of Ignition may say."""

from __future__ import annotations

import json

import pytest

from virt_core.apis.ignition import MOST_BYTES, fault_of

GOOD = {"ignition": {"version": "3.4.0"}}


@pytest.mark.parametrize("data", [GOOD, {"ignition": {"version": "2.2.0", "config": {}}, "storage": {"files": []}}])
def test_data_that_names_its_version(data: object) -> None:
    assert fault_of(json.dumps(data)) is None


@pytest.mark.parametrize(
    "text", ["", "{", "variant: fcos", '{"ignition": {"version": "3"}} x', "\ud800", "[" * 100_000]
)
def test_what_is_no_json(text: str) -> None:
    assert (fault_of(text) or "").startswith("must be JSON: ")


@pytest.mark.parametrize("data", [[], "x", None, {}, {"ignition": "3"}, {"ignition": {}}, {"ignition": {"version": 3}}])
def test_json_that_is_something_else(data: object) -> None:
    assert "ignition.version" in (fault_of(json.dumps(data)) or "")


def test_its_size_is_bounded_in_bytes() -> None:
    room = MOST_BYTES - len(json.dumps(GOOD | {"a": ""}))
    assert fault_of(json.dumps(GOOD | {"a": "x" * room})) is None
    assert "at most 262144" in (fault_of(json.dumps(GOOD | {"a": "x" * (room + 1)})) or "")
    assert "at most 262144" in (fault_of(json.dumps(GOOD | {"a": "ä" * room}, ensure_ascii=False)) or "")
