"""Structural schemas: types, bounds, combinations, pruning and defaults."""

from __future__ import annotations

from typing import Any

import pytest

from virt_local.apiserver.schema import apply_defaults, compile_schema, prune, validate
from virt_local.apiserver.schema.builtin import builtin_node
from virt_local.apiserver.schema.protobuf import BadProtobuf, decode


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string"}, ["", "x"], [1, None, True, []]),
        ({"type": "integer"}, [1, -1, 2.0], ["1", 1.5, True]),
        ({"type": "number"}, [1, 1.5], ["1", False]),
        ({"type": "boolean"}, [True], [1, "true"]),
        ({"type": "string", "nullable": True}, [None, "x"], [1]),
        ({"x-kubernetes-int-or-string": True}, [1, "1"], [1.5, True, []]),
        ({"type": "string", "enum": ["a", "b"]}, ["a"], ["c"]),
        ({"type": "string", "pattern": "^a+$"}, ["aa"], ["b", ""]),
        ({"type": "string", "minLength": 1, "maxLength": 2}, ["a"], ["", "abc"]),
        ({"type": "integer", "minimum": 1, "maximum": 3, "exclusiveMaximum": True}, [1, 2], [0, 3]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 1}, [[1]], [[], ["x"]]),
        ({"type": "object", "required": ["a"]}, [{"a": 1}], [{}]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"x": 1}], [{"x": "y"}]),
        ({"type": "string", "format": "date-time"}, ["2026-01-01T00:00:00Z"], ["yesterday"]),
        ({"type": "integer", "oneOf": [{"minimum": 5}, {"maximum": 3}]}, [6, 2], [4]),
        ({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 6}]}, [5, 9], []),
        ({"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 6}]}, [5], [4, 7]),
        ({"type": "integer", "not": {"enum": [3]}}, [4], [3]),
    ],
)
def test_validation(schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    node = compile_schema(schema)
    for value in good:
        assert validate(value, node, "f") == []
    for value in bad:
        assert validate(value, node, "f"), f"{value!r} should be refused"


def test_list_keys_are_unique() -> None:
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    item = {"type": "object", "properties": {"name": {"type": "string"}}}
    node = compile_schema({"type": "array", "items": item, **keyed})
    assert validate([{"name": "a"}, {"name": "b"}], node, "l") == []
    causes = validate([{"name": "a"}, {"name": "a"}], node, "l")
    assert [(cause.field, cause.reason) for cause in causes] == [("l[1]", "FieldValueDuplicate")]


def test_prune_keeps_what_is_declared_free() -> None:
    schema = {
        "type": "object",
        "properties": {
            "closed": {"type": "object", "properties": {"a": {"type": "string"}}},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "object": {"type": "object", "x-kubernetes-embedded-resource": True},
        },
    }
    obj = {
        "closed": {"a": "1", "b": "2"},
        "open": {"x": {"y": 1}},
        "map": {"k": "v"},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}},
        "more": 1,
    }
    assert prune(obj, compile_schema(schema)) == ["closed.b", "object.spec", "more"]
    assert obj["closed"] == {"a": "1"}
    assert obj["open"] == {"x": {"y": 1}}
    assert obj["map"] == {"k": "v"}


def test_defaults_fill_in_depth_but_do_not_make_parents() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}}
    made = {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 2}}}
    node = compile_schema({"type": "object", "properties": {"inner": inner, "made": made}})
    obj: dict[str, Any] = {}
    apply_defaults(obj, node)
    assert obj == {"made": {"b": 2}}
    obj = {"inner": {}}
    apply_defaults(obj, node)
    assert obj == {"inner": {"a": 1}, "made": {"b": 2}}


def test_built_in_types_take_quantities_as_numbers() -> None:
    pod = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}}
    assert validate(pod, builtin_node("V1Pod")) == []
    assert prune(pod, builtin_node("V1Pod")) == []
    pod["spec"]["containers"][0]["ports"] = "none"
    assert [cause.field for cause in validate(pod, builtin_node("V1Pod"))] == ["spec.containers[0].ports"]


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2, len(data)]) + data


def test_protobuf_of_a_typed_client() -> None:
    identity = _field(1, b"v1") + _field(2, b"ConfigMap")
    metadata = _field(1, b"name1") + _field(11, _field(1, b"l") + _field(2, b"v"))
    raw = _field(1, metadata) + _field(2, _field(1, b"k") + _field(2, b"value"))
    body = b"k8s\x00" + _field(1, identity) + _field(2, raw)
    assert decode(body) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "name1", "labels": {"l": "v"}},
        "data": {"k": "value"},
    }
    for wrong in (b"", b"k8s\x00\x0a\x7f", b"k8s\x00" + _field(1, _field(2, b"Nothing"))):
        with pytest.raises(BadProtobuf):
            decode(wrong)
