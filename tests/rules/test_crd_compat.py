"""Objects of the last release can still be read and written: the CRDs have only become wider."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from framework.crdcompat import broken, summary, without_descriptions

from virt_core.apis.crds import plain_definitions

RELEASED = Path(__file__).resolve().parents[1] / "golden" / "crds-released"
NAMES = sorted(path.stem for path in RELEASED.glob("*.json"))


@pytest.fixture(scope="module")
def current() -> dict[str, Any]:
    return {Path(name).stem: summary(crd) for name, crd in plain_definitions().items()}


@pytest.mark.parametrize("name", NAMES)
def test_kind_of_the_last_release_still_fits(name: str, current: dict[str, Any]) -> None:
    assert name in current, f"the CRD {name} is gone"
    assert broken(json.loads((RELEASED / f"{name}.json").read_text()), current[name]) == []


def test_there_is_a_last_release() -> None:
    assert {"virtualmachines", "virtualmachineinstances", "kubevirts"} <= set(NAMES)


OLD: dict[str, Any] = {
    "group": "kubevirt.io",
    "scope": "Namespaced",
    "names": {"kind": "X", "plural": "xs", "singular": "x", "listKind": "XList", "shortNames": ["xx"]},
    "versions": {
        "v1": {
            "served": True,
            "storage": True,
            "subresources": {"status": {}},
            "schema": {
                "type": "object",
                "required": ["a"],
                "properties": {
                    "a": {"type": "string", "enum": ["p", "q"], "maxLength": 9},
                    "n": {"type": "integer", "minimum": 1, "default": 2},
                    "m": {"type": "object", "additionalProperties": {"type": "string"}},
                    "l": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "object"}},
                    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
        }
    },
}
Edit = Callable[[dict[str, Any], dict[str, Any]], object]
#: Each a change that somebody would feel: of the whole, and of the properties.
BREAKS: dict[str, Edit] = {
    "group": lambda crd, _: crd.update(group="other.io"),
    "scope": lambda crd, _: crd.update(scope="Cluster"),
    "kind": lambda crd, _: crd["names"].update(kind="Y"),
    "short name": lambda crd, _: crd["names"].update(shortNames=None),
    "version gone": lambda crd, _: crd["versions"].clear(),
    "not served": lambda crd, _: crd["versions"]["v1"].update(served=False),
    "subresource": lambda crd, _: crd["versions"]["v1"].update(subresources={}),
    "field gone": lambda _, fields: fields.pop("n"),
    "type": lambda _, fields: fields["n"].update(type="string"),
    "format": lambda _, fields: fields["n"].update(format="int32"),
    "default": lambda _, fields: fields["n"].update(default=3),
    "enum narrowed": lambda _, fields: fields["a"].update(enum=["p"]),
    "enum added": lambda _, fields: fields["n"].update(enum=[1, 2]),
    "minimum raised": lambda _, fields: fields["n"].update(minimum=2),
    "maximum added": lambda _, fields: fields["n"].update(maximum=9),
    "shorter": lambda _, fields: fields["a"].update(maxLength=8),
    "pattern": lambda _, fields: fields["a"].update(pattern="^p"),
    "required": lambda crd, _: crd["versions"]["v1"]["schema"].update(required=["a", "n"]),
    "map values": lambda _, fields: fields["m"].update(additionalProperties={"type": "integer"}),
    "map closed": lambda _, fields: fields["m"].pop("additionalProperties"),
    "items": lambda _, fields: fields["l"].update(items={"type": "string"}),
    "list type": lambda _, fields: fields["l"].update({"x-kubernetes-list-type": "set"}),
    "unknown fields": lambda _, fields: fields["any"].pop("x-kubernetes-preserve-unknown-fields"),
    "rule": lambda _, fields: fields["a"].update({"x-kubernetes-validations": [{"rule": "self != 'p'"}]}),
}
WIDER: dict[str, Edit] = {
    "new field": lambda _, fields: fields.update(new={"type": "string"}),
    "new version": lambda crd, _: crd["versions"].update(v2=copy.deepcopy(crd["versions"]["v1"])),
    "enum wider": lambda _, fields: fields["a"].update(enum=["p", "q", "r"]),
    "enum dropped": lambda _, fields: fields["a"].pop("enum"),
    "longer": lambda _, fields: fields["a"].update(maxLength=10),
    "limit dropped": lambda _, fields: fields["n"].pop("minimum"),
    "not required": lambda crd, _: crd["versions"]["v1"]["schema"].pop("required"),
    "nullable": lambda _, fields: fields["n"].update(nullable=True),
}


def edited(edit: Edit) -> dict[str, Any]:
    new = copy.deepcopy(OLD)
    edit(new, new["versions"]["v1"]["schema"]["properties"])
    return new


@pytest.mark.parametrize("name", BREAKS)
def test_every_kind_of_break_is_noticed(name: str) -> None:
    assert len(broken(OLD, edited(BREAKS[name]))) == 1


@pytest.mark.parametrize("name", WIDER)
def test_wider_is_fine(name: str) -> None:
    assert broken(OLD, edited(WIDER[name])) == []


def test_words_are_left_out_and_fields_of_that_name_are_not() -> None:
    schema = {"description": "Words.", "properties": {"description": {"type": "string", "description": "More."}}}
    assert without_descriptions(schema) == {"properties": {"description": {"type": "string"}}}
