"""Rules in CEL, and fields that come twice."""

from __future__ import annotations

from typing import Any

import pytest

from virt_local.apiserver import cel
from virt_local.apiserver.schema import check_rules, compile_schema
from virt_local.apiserver.verbs.duplicates import duplicates


def _schema(*rules: dict[str, Any]) -> Any:
    item = {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}
    item["x-kubernetes-validations"] = [
        {"rule": "!has(oldSelf.size) || self.size >= oldSelf.size", "message": "shrinks"}
    ]
    disks = {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    properties = {"low": {"type": "integer"}, "high": {"type": "integer"}, "disks": disks}
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": list(rules)}
    return compile_schema({"type": "object", "properties": {"spec": spec}})


def test_a_rule_names_the_place_and_the_reason() -> None:
    node = _schema({"rule": "self.low <= self.high", "message": "too low", "fieldPath": ".low"})
    assert not check_rules({"spec": {"low": 1, "high": 2}}, None, node)
    (cause,) = check_rules({"spec": {"low": 3, "high": 2}}, None, node)
    assert (cause.field, cause.message) == ("spec.low", "Invalid value: too low")
    (cause,) = check_rules({"spec": {"low": 3}}, None, node)
    assert "no such key: high" in cause.message


def test_transitions_compare_items_by_their_keys() -> None:
    node = _schema()
    old = {"spec": {"disks": [{"name": "a", "size": 5}, {"name": "b", "size": 1}]}}
    grown = {"spec": {"disks": [{"name": "b", "size": 2}, {"name": "a", "size": 5}, {"name": "c", "size": 1}]}}
    assert not check_rules(grown, old, node)
    (cause,) = check_rules({"spec": {"disks": [{"name": "a", "size": 4}]}}, old, node)
    assert cause.field == "spec.disks[0]"
    assert not check_rules(old, None, node), "a new object has no transition"


@pytest.mark.parametrize("text", ["1 +", "'text'", "isSorted([1])", "undefined(self)"])
def test_what_cannot_be_evaluated_is_refused_when_it_is_written(text: str) -> None:
    with pytest.raises(cel.BadExpression):
        cel.compile_expression(text)


def test_fields_that_come_twice() -> None:
    body = b'{"a": {"k": 1}, "a": {"l": 2}, "b": [{"c": 1, "c": 2}], "d": 1}'
    paths, last = duplicates(body, merge=False)
    assert (paths, last["a"]) == (["a", "b[0].c"], {"l": 2})
    assert duplicates(body, merge=True)[1]["a"] == {"k": 1, "l": 2}
    assert duplicates(b'{"a": 1}', merge=True) == ([], {"a": 1})
