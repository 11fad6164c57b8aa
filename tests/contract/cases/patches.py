"""JSON patch, merge patch and strategic merge patch."""

from __future__ import annotations

from typing import Any

from contract.cases.lists import gadget
from contract.table import case
from contract.talk import GADGETS, JSON_PATCH, MAPS, MERGE, PODS, STRATEGIC, Talk


def _map(t: Talk) -> Any:
    body = {"metadata": {"name": "a", "labels": {"x": "1"}}, "data": {"k": "v", "l": "w"}}
    return t.given(MAPS, body)


def _op(op: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": op, "path": path, **more}


@case()
def json_operations(t: Talk) -> None:
    _map(t)
    for operations in (
        [_op("add", "/data/m", value="x"), _op("remove", "/data/l")],
        [_op("replace", "/data/k", value="w"), _op("test", "/data/k", value="w")],
        [_op("copy", "/data/c", **{"from": "/data/k"}), _op("move", "/data/d", **{"from": "/data/m"})],
        [_op("add", "/metadata/annotations", value={"a.b/c": "1"})],
        [_op("replace", "/metadata/annotations/a.b~1c", value="2")],
        [],
    ):
        t.patch(f"{MAPS}/a", operations, JSON_PATCH)


@case(words=False)
def json_operations_that_fail(t: Talk) -> None:
    _map(t)
    for operations in (
        [_op("test", "/data/k", value="no")],
        [_op("remove", "/data/none")],
        [_op("replace", "/data/none", value="x")],
        [_op("add", "/none/deep", value="x")],
        [_op("shake", "/data/k")],
        [_op("add", "/data/k", value=7)],
        {"op": "add"},
        "text",
    ):
        t.patch(f"{MAPS}/a", operations, JSON_PATCH)
    t.patch(f"{MAPS}/a", b"{", JSON_PATCH)


@case()
def json_lists(t: Talk) -> None:
    t.given(GADGETS, gadget("a", order=["a", "b"]))
    for operation in (
        _op("add", "/spec/order/-", value="c"),
        _op("add", "/spec/order/0", value="z"),
        _op("remove", "/spec/order/1"),
        _op("replace", "/spec/order/0", value="y"),
    ):
        t.patch(f"{GADGETS}/a", [operation], JSON_PATCH, pick=lambda body: body["spec"])


@case()
def json_test_of_the_revision(t: Talk) -> None:
    made = _map(t)
    guard = _op("test", "/metadata/resourceVersion", value=made.revision)
    t.patch(f"{MAPS}/a", [guard, _op("replace", "/data/k", value="x")], JSON_PATCH)
    t.patch(f"{MAPS}/a", [guard, _op("replace", "/data/k", value="y")], JSON_PATCH)


@case()
def merge(t: Talk) -> None:
    _map(t)
    t.patch(f"{MAPS}/a", {"data": {"k": None, "n": "1"}, "metadata": {"labels": {"y": "2"}}})
    t.patch(f"{MAPS}/a", {"data": None})
    t.patch(f"{MAPS}/a", {})
    t.given(GADGETS, gadget("a", order=["a", "b"], free={"x": {"y": 1}}))
    t.patch(f"{GADGETS}/a", {"spec": {"order": ["c"], "free": {"x": {"z": 2}}}})
    t.patch(f"{GADGETS}/a", {"spec": {"free": None}})


@case(words=False)
def merge_that_fails(t: Talk) -> None:
    _map(t)
    for body in (b"[]", b"{", b'"x"', b""):
        t.patch(f"{MAPS}/a", body)
    t.patch(f"{MAPS}/a", {"data": {"k": 1}})
    t.patch(f"{MAPS}/a", {"metadata": {"labels": {"bad key": "x"}}})
    t.patch(f"{MAPS}/none", {"data": {}})


@case()
def changes_of_identity(t: Talk) -> None:
    _map(t)
    t.patch(f"{MAPS}/a", {"metadata": {"name": "b"}})
    t.patch(f"{MAPS}/a", {"metadata": {"namespace": "other"}})
    t.patch(f"{MAPS}/a", {"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}})


@case(words=False)
def changes_of_kind(t: Talk) -> None:
    _map(t)
    t.patch(f"{MAPS}/a", {"kind": "Secret"})
    t.patch(f"{MAPS}/a", {"apiVersion": "v2"})


@case()
def preconditions(t: Talk) -> None:
    made = _map(t)
    t.patch(f"{MAPS}/a", {"metadata": {"resourceVersion": made.revision}, "data": {"k": "1"}})
    t.patch(f"{MAPS}/a", {"metadata": {"resourceVersion": made.revision}, "data": {"k": "2"}})
    t.patch(f"{MAPS}/a", {"metadata": {"uid": made.uid}, "data": {"k": "3"}})


@case()
def nothing_to_do(t: Talk) -> None:
    made = _map(t)
    again = t.patch(f"{MAPS}/a", {"data": {"k": "v"}})
    t.note("the revision stays", again.revision == made.revision)


@case(words=False)
def types_that_are_not_served(t: Talk) -> None:
    _map(t)
    t.patch(f"{MAPS}/a", {}, "application/json")
    t.patch(f"{MAPS}/a", {}, "application/x-unknown")
    t.given(GADGETS, gadget("a"))
    t.patch(f"{GADGETS}/a", {"spec": {"size": 2}}, STRATEGIC)


def _pod(t: Talk) -> None:
    first = {"name": "c", "image": "one", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
    spec = {"schedulerName": "nobody", "containers": [first, {"name": "d", "image": "two"}]}
    t.given(PODS, {"metadata": {"name": "p", "finalizers": ["contract.test/a", "contract.test/b"]}, "spec": spec})


def _done(t: Talk) -> None:
    t.send("PATCH", f"{PODS}/p", {"metadata": {"finalizers": None}}, content_type=MERGE)
    t.send("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})


def _images(body: Any) -> Any:
    return [(c["name"], c["image"]) for c in body["spec"]["containers"]], body["metadata"].get("finalizers")


@case()
def strategic(t: Talk) -> None:
    _pod(t)
    t.patch(f"{PODS}/p", {"spec": {"containers": [{"name": "d", "image": "three"}]}}, STRATEGIC, pick=_images)
    t.patch(f"{PODS}/p", {"metadata": {"finalizers": ["contract.test/c"]}}, STRATEGIC, pick=_images)
    gone = {"$deleteFromPrimitiveList/finalizers": ["contract.test/a"]}
    t.patch(f"{PODS}/p", {"metadata": gone}, STRATEGIC, pick=_images)
    t.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "1", "b": "2"}}}, STRATEGIC, pick=lambda b: b["metadata"])
    t.patch(
        f"{PODS}/p", {"metadata": {"labels": {"$patch": "replace", "c": "3"}}}, STRATEGIC, pick=lambda b: b["metadata"]
    )
    t.patch(f"{PODS}/p", {"metadata": {"labels": None}}, STRATEGIC, pick=lambda b: b["metadata"])
    _done(t)


@case()
def strategic_on_a_service(t: Talk) -> None:
    place = "/api/v1/namespaces/{ns}/services"
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    t.given(place, {"metadata": {"name": "s"}, "spec": {"ports": ports, "clusterIP": "None", "selector": {"x": "y"}}})

    def change(spec: Any) -> None:
        t.patch(f"{place}/s", {"spec": spec}, STRATEGIC, pick=lambda body: body["spec"])

    change({"ports": [{"port": 81, "name": "c"}, {"port": 82, "name": "d"}]})
    change({"ports": [{"port": 80, "$patch": "delete"}]})
    change({"$setElementOrder/ports": [{"port": 82}, {"port": 81}], "ports": [{"port": 82, "name": "e"}]})
    change({"ports": [{"$patch": "replace"}, {"port": 90, "name": "f"}]})
    change({"selector": {"$patch": "replace", "z": "1"}})
    change({"selector": {"x": "2"}})


@case(words=False)
def strategic_that_fails(t: Talk) -> None:
    _pod(t)
    t.patch(f"{PODS}/p", {"spec": {"containers": [{"image": "x"}]}}, STRATEGIC)
    t.patch(f"{PODS}/p", {"spec": {"$patch": "shake"}}, STRATEGIC)
    t.patch(f"{PODS}/p", [], STRATEGIC)
    t.patch(f"{PODS}/p", {"spec": {"containers": "x"}}, STRATEGIC)
    _done(t)


@case()
def unknown_fields(t: Talk) -> None:
    _map(t)
    t.patch(f"{MAPS}/a", {"dota": {"k": "x"}})
    t.patch(f"{MAPS}/a?fieldValidation=Strict", {"dota": {"k": "x"}})
    t.given(GADGETS, gadget("a"))
    t.patch(f"{GADGETS}/a", {"spec": {"sise": 1}})
    t.patch(f"{GADGETS}/a?fieldValidation=Strict", {"spec": {"sise": 1}})
    t.patch(f"{GADGETS}/a?fieldValidation=Ignore", {"spec": {"sise": 1}})
