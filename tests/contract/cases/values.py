"""Values of fields: of the wrong type, too many, fixed, or nothing at all."""

from __future__ import annotations

from contract.cases.objects import config
from contract.table import case
from contract.talk import MAPS, PODS, Talk


@case(words=False)
def bad_keys(t: Talk) -> None:
    t.create(MAPS, config(**{"a/b": "c"}))
    t.create(MAPS, config(**{"..": "c"}))
    t.create(MAPS, config(both="c") | {"binaryData": {"both": "AAAA"}})
    t.create(MAPS, config() | {"binaryData": {"x": "not base64!"}})


@case(words=False)
def immutable_data(t: Talk) -> None:
    t.create(MAPS, config() | {"immutable": True})
    t.patch(f"{MAPS}/a", {"data": {"k": "w"}})
    t.patch(f"{MAPS}/a", {"immutable": False})
    t.patch(f"{MAPS}/a", {"metadata": {"labels": {"a": "b"}}})


@case(words=False)
def wrong_types(t: Talk) -> None:
    t.create(MAPS, config() | {"data": ["a"]})
    t.create(MAPS, config() | {"data": {"a": 1}})
    t.create(MAPS, config() | {"immutable": "yes"})
    t.create(PODS, {"metadata": {"name": "a"}, "spec": {"containers": "c"}})
    t.create(PODS, {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": 7}]}})


@case()
def nulls_are_not_set(t: Talk) -> None:
    t.create(MAPS, config() | {"data": None, "immutable": None})
    t.create(MAPS, {"metadata": {"name": "b", "labels": None, "annotations": {}, "finalizers": []}, "data": {}})
    t.create(MAPS, config("c") | {"data": {"k": None}})
