"""Custom resources: validation, pruning, defaults, subresources, versions, and their definitions."""

from __future__ import annotations

from typing import Any

from contract.cases.lists import gadget
from contract.table import case
from contract.talk import GADGETS, GROUP, MERGE, PARTS, Talk

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@case()
def defaults(t: Talk) -> None:
    t.create(GADGETS, gadget("a", disks=[{"name": "x"}, {"name": "y", "bus": "sata"}]))
    t.create(GADGETS, gadget("b", colour=None, replicas=None))


@case()
def pruning(t: Talk) -> None:
    body = gadget("a", unknown=1, free={"any": {"thing": [1]}}, disks=[{"name": "x", "odd": True}])
    t.create(GADGETS, body | {"extra": {"a": "b"}})
    t.create(f"{GADGETS}?fieldValidation=Ignore", gadget("b", unknown=1))
    t.create(f"{GADGETS}?fieldValidation=Strict", gadget("c", unknown=1) | {"extra": 1})
    t.create(f"{GADGETS}?fieldValidation=Sometimes", gadget("d"))


@case()
def unknown_metadata(t: Talk) -> None:
    body = gadget("a")
    body["metadata"] |= {"unknown": "x"}
    t.create(GADGETS, body)
    t.create(f"{GADGETS}?fieldValidation=Strict", body)


@case()
def duplicate_fields(t: Talk) -> None:
    body = f'{{"apiVersion":"{GROUP}/v1","kind":"Gadget","metadata":{{"name":"a"}},"spec":{{"size":1,"size":2}}}}'
    t.create(GADGETS, body.encode())
    t.create(f"{GADGETS}?fieldValidation=Strict", body.encode())


@case()
def invalid_values(t: Talk) -> None:
    wrong: list[dict[str, Any]] = [
        {"size": 0},
        {"size": 101},
        {"size": "big"},
        {"size": 1.5},
        {"size": None},
        {"colour": "blue"},
        {"code": "UP"},
        {"code": "abcdef"},
        {"code": "a"},
        {"ratio": -0.5},
        {"ratio": 0.75},
        {"on": "yes"},
        {"port": True},
        {"free": "text"},
        {"labels": {"a": 1}},
        {"labels": {"a": "1", "b": "2", "c": "3"}},
        {"order": []},
        {"order": ["1", "2", "3", "4"]},
        {"tags": ["x", "x"]},
        {"disks": [{"name": "x"}, {"name": "x"}]},
        {"disks": [{"size": 1}]},
        {"choice": {"a": "1", "b": "2"}},
        {"choice": {}},
        {"disks": {"name": "x"}},
    ]
    for spec in wrong:
        t.create(GADGETS, gadget("a", **spec))


@case(words=False)
def invalid_formats(t: Talk) -> None:
    t.create(GADGETS, gadget("a", when="yesterday"))


@case()
def several_errors(t: Talk) -> None:
    t.create(GADGETS, gadget("a", size=0, colour="blue", disks=[{"size": 1}]))


@case()
def missing_required(t: Talk) -> None:
    body = gadget("a")
    del body["spec"]["size"]
    t.create(GADGETS, body)
    t.create(GADGETS, gadget("a") | {"spec": None})


@case()
def values_that_fit(t: Talk) -> None:
    t.create(GADGETS, gadget("a", port="http", ratio=1.5, maybe=None, when="2020-01-01T00:00:00Z", size=2.0))
    t.create(GADGETS, gadget("b", port=80, labels={"a": "b"}, code="abc", choice={"a": "1"}, on=False, free={}))


@case()
def status_is_apart(t: Talk) -> None:
    t.create(GADGETS, gadget("a") | {"status": {"phase": "Up"}})
    made = t.patch(f"{GADGETS}/a", {"spec": {"size": 2}, "status": {"phase": "Up"}}).body
    t.update(f"{GADGETS}/a/status", made | {"status": {"phase": "Up"}, "spec": {"size": 9}})
    t.get(f"{GADGETS}/a/status")
    t.patch(f"{GADGETS}/a/status", {"status": {"phase": "Down"}, "metadata": {"labels": {"a": "b"}}})
    t.patch(f"{GADGETS}/a", {"metadata": {"labels": {"a": "b"}}})
    t.patch(f"{GADGETS}/a/status", {"status": {"phase": 7}})
    t.update(f"{GADGETS}/a/status", made)
    t.create(f"{GADGETS}/a/status", made)
    t.delete(f"{GADGETS}/a/status")


@case()
def update_needs_a_revision(t: Talk) -> None:
    t.given(GADGETS, gadget("a"))
    t.update(f"{GADGETS}/a", gadget("a"))
    t.update(f"{GADGETS}/none", gadget("none"))


@case()
def generations(t: Talk) -> None:
    def shown(body: Any) -> Any:
        return body["metadata"]["generation"]

    t.create(GADGETS, gadget("a"), pick=shown)
    t.patch(f"{GADGETS}/a", {"spec": {"size": 2}}, pick=shown)
    t.patch(f"{GADGETS}/a", {"spec": {"size": 2}}, pick=shown)
    t.patch(f"{GADGETS}/a", {"metadata": {"labels": {"a": "b"}}}, pick=shown)
    t.patch(f"{GADGETS}/a/status", {"status": {"phase": "Up"}}, pick=shown)
    name = t.own("part", "PART")
    t.undo(f"{PARTS}/{name}")
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Part", "metadata": {"name": name}, "status": {"kept": True}}
    t.create(PARTS, body)
    t.patch(f"{PARTS}/{name}", {"status": {"kept": False}})
    t.patch(f"{PARTS}/{name}", {"anything": {"goes": 1}})
    t.get(f"{PARTS}/{name}/status")


@case()
def scale(t: Talk) -> None:
    t.given(GADGETS, gadget("a", replicas=3))
    status = {"status": {"replicas": 2, "selector": "a=b"}}
    t.send("PATCH", f"{GADGETS}/a/status", status, content_type=MERGE)
    got = t.get(f"{GADGETS}/a/scale")
    t.update(f"{GADGETS}/a/scale", got.body | {"spec": {"replicas": 5}})
    t.update(f"{GADGETS}/a/scale", got.body | {"spec": {"replicas": 6}})
    t.patch(f"{GADGETS}/a/scale", {"spec": {"replicas": 4}})
    t.patch(f"{GADGETS}/a/scale", {"spec": {"replicas": -1}})
    t.patch(
        f"{GADGETS}/a/scale", [{"op": "replace", "path": "/spec/replicas", "value": 1}], "application/json-patch+json"
    )
    t.get(f"{GADGETS}/a", pick=lambda body: [body["spec"], body["metadata"]["generation"]])
    t.get(f"{GADGETS}/none/scale")
    t.get(f"{PARTS}/none/scale")


@case()
def scale_bodies(t: Talk) -> None:
    t.given(GADGETS, gadget("a"))
    t.update(f"{GADGETS}/a/scale", {"spec": {"replicas": 2}})
    t.update(f"{GADGETS}/a/scale", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 2}}
    t.update(f"{GADGETS}/a/scale", scale)


@case()
def other_versions(t: Talk) -> None:
    other = f"/apis/{GROUP}/v1alpha1/namespaces/{{ns}}/gadgets"
    t.create(other, gadget("a") | {"apiVersion": f"{GROUP}/v1alpha1"})
    t.get(f"{GADGETS}/a")
    t.get(f"{other}/a")
    t.get(other)
    t.patch(f"{other}/a", {"spec": {"size": 3}})
    t.create(other, gadget("b"))


@case()
def cluster_scope(t: Talk) -> None:
    name = t.own("part", "PART")
    t.undo(f"{PARTS}/{name}")
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Part", "metadata": {"name": name}}
    t.create(PARTS, body | {"metadata": {"name": name, "namespace": t.ns}})
    t.create(PARTS, body)
    t.get(f"{PARTS}/{name}")
    t.get(f"/apis/{GROUP}/v1/namespaces/{{ns}}/parts/{name}")
    t.get(f"/apis/{GROUP}/v1/gadgets/a")
