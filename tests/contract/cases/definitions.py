"""CustomResourceDefinitions: their life, their mistakes, and rules in CEL."""

from __future__ import annotations

from typing import Any

from contract.rig import crd, version
from contract.table import case
from contract.talk import GROUP, Talk

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _widgets(**more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object"}}}
    return crd("widgets", "Widget", [version("v1", schema)], group=f"w.{GROUP}") | more


def _crd(body: Any) -> Any:
    """The conditions come in their own time, so a definition's status is compared apart."""
    return {key: value for key, value in body.items() if key != "status"}


def _condition(body: Any, kind: str) -> str:
    conditions = (body.get("status") or {}).get("conditions") or []
    return str(next((c["status"] for c in conditions if c["type"] == kind), ""))


@case(ownership=False)
def a_definition(t: Talk) -> None:
    name = f"widgets.w.{GROUP}"
    t.send("DELETE", f"{CRDS}/{name}")
    t.undo(f"{CRDS}/{name}")
    t.wait(f"{CRDS}/{name}", lambda reply: reply.status == 404)
    t.create(CRDS, _widgets(), pick=_crd)
    t.until(f"{CRDS}/{name}", lambda r: _condition(r.body, "Established") == "True", pick=lambda b: b["status"])
    place = f"/apis/w.{GROUP}/v1/namespaces/{{ns}}/widgets"
    t.wait(place.replace("{ns}", t.ns), lambda reply: reply.status == 200)
    body = {"apiVersion": f"w.{GROUP}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"x": 1}}
    t.create(place, body)
    t.get(f"/apis/w.{GROUP}")
    t.get(f"/apis/w.{GROUP}/v1")
    t.get(place, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    t.create(CRDS, _widgets())
    t.delete(f"{CRDS}/{name}", pick=lambda body: body["metadata"])
    t.until(f"{CRDS}/{name}", lambda reply: reply.status == 404)
    t.wait(place.replace("{ns}", t.ns), lambda reply: reply.status == 404)
    t.get(place)


@case(words=False)
def bad_definitions(t: Talk) -> None:
    """Refused, and for the same fields."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    group = f"w.{GROUP}"
    named = _widgets()
    named["metadata"] = {"name": "other.example.com"}
    t.create(CRDS, named)
    t.create(CRDS, crd("widgets", "Widget", [version("v1", {"properties": {"a": {"type": "string"}}})], group=group))
    t.create(CRDS, crd("widgets", "Widget", [version("v1", free), version("v2", free)], group=group))
    t.create(CRDS, crd("widgets", "Widget", [version("v1", free, storage=False)], group=group))
    t.create(CRDS, crd("widgets", "Widget", [], group=group))
    t.create(CRDS, crd("widgets", "Widget", [version("v1", free)], group=group, scope="Everywhere"))
    t.create(CRDS, crd("widgets", "Widget", [{"name": "v1", "served": True, "storage": True}], group=group))
    t.create(CRDS, crd("Widgets", "Widget", [version("v1", free)], group=group))
    untyped = {"type": "object", "properties": {"spec": {"properties": {"a": {"type": "string"}}}}}
    t.create(CRDS, crd("widgets", "Widget", [version("v1", untyped)], group=group))


@case()
def protected_groups(t: Talk) -> None:
    """Groups under k8s.io need an approval: the definition is stored and not served."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    t.create(CRDS, crd("contractwidgets", "ContractWidget", [version("v1", free)], group="contract.k8s.io"))


@case()
def rules(t: Talk) -> None:
    """x-kubernetes-validations."""
    name = f"ruled.r.{GROUP}"
    t.send("DELETE", f"{CRDS}/{name}")
    t.undo(f"{CRDS}/{name}")
    t.wait(f"{CRDS}/{name}", lambda reply: reply.status == 404)
    rules = [
        {"rule": "self.low <= self.high", "message": "low must not be above high"},
        {"rule": "self.low == oldSelf.low", "message": "low may not change", "fieldPath": ".low"},
    ]
    number = {"type": "integer"}
    spec = {"type": "object", "properties": {"low": number, "high": number}, "x-kubernetes-validations": rules}
    t.given(
        CRDS,
        crd("ruled", "Ruled", [version("v1", {"type": "object", "properties": {"spec": spec}})], group=f"r.{GROUP}"),
    )
    place = f"/apis/r.{GROUP}/v1/namespaces/{t.ns}/ruled"
    t.wait(place, lambda reply: reply.status == 200)
    body = {"apiVersion": f"r.{GROUP}/v1", "kind": "Ruled", "metadata": {"name": "a"}, "spec": {"low": 5, "high": 1}}
    t.create(place, body)
    t.create(place, body | {"spec": {"low": 1, "high": 5}})
    t.patch(f"{place}/a", {"spec": {"high": 0}})
    t.patch(f"{place}/a", {"spec": {"low": 2}})
    t.patch(f"{place}/a", {"spec": {"high": 9}})
