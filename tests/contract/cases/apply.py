"""Server-side apply: creation, conflicts, force, removal, and who owns what."""

from __future__ import annotations

import json
from typing import Any

from contract.cases.lists import gadget
from contract.table import case
from contract.talk import APPLY, GADGETS, GROUP, MAPS, MERGE, PODS, Reply, Talk


def _config(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


def _apply(t: Talk, path: str, body: Any, manager: str, query: str = "", **more: Any) -> Reply:
    return t.patch(f"{path}?fieldManager={manager}{query}", body, APPLY, **more)


@case(ownership=True)
def creates_and_updates(t: Talk) -> None:
    made = _apply(t, f"{MAPS}/a", _config(k="v"), "one")
    again = _apply(t, f"{MAPS}/a", _config(k="v"), "one")
    t.note("the revision stays", again.revision == made.revision)
    _apply(t, f"{MAPS}/a", _config(k="w", l="x"), "one")
    _apply(t, f"{MAPS}/a", _config(l="x"), "one")


@case(ownership=True)
def conflicts(t: Talk) -> None:
    _apply(t, f"{MAPS}/a", _config(k="v", l="w"), "one")
    _apply(t, f"{MAPS}/a", _config(k="x"), "two")
    _apply(t, f"{MAPS}/a", _config(k="x", l="y"), "two")
    _apply(t, f"{MAPS}/a", _config(k="v"), "two")
    _apply(t, f"{MAPS}/a", _config(k="x"), "two", "&force=true")
    _apply(t, f"{MAPS}/a", _config(k="v"), "one")


@case(ownership=True)
def shared_fields(t: Talk) -> None:
    _apply(t, f"{MAPS}/a", _config(k="v", l="w"), "one")
    _apply(t, f"{MAPS}/a", _config(k="v"), "two")
    _apply(t, f"{MAPS}/a", _config(l="w"), "one")
    _apply(t, f"{MAPS}/a", {**_config(), "data": {}}, "two")


@case(ownership=True)
def on_an_object_of_others(t: Talk) -> None:
    """Created and patched by plain requests first."""
    t.create(f"{MAPS}?fieldManager=maker", _config(k="v", l="w"))
    t.patch(f"{MAPS}/a?fieldManager=patcher", {"data": {"l": "x"}})
    _apply(t, f"{MAPS}/a", _config(k="other"), "one")
    _apply(t, f"{MAPS}/a", _config(k="v"), "one")
    _apply(t, f"{MAPS}/a", _config(k="other"), "one", "&force=true")


@case(ownership=True)
def then_changed_by_others(t: Talk) -> None:
    _apply(t, f"{MAPS}/a", _config(k="v", l="w"), "one")
    t.patch(f"{MAPS}/a?fieldManager=patcher", {"data": {"k": "x", "m": "y"}})
    t.patch(f"{MAPS}/a?fieldManager=patcher", {"data": {"l": None}})
    _apply(t, f"{MAPS}/a", _config(k="v"), "one")
    body = t.send("GET", f"{MAPS}/a").body
    body["data"] = {"k": "updated"}
    t.update(f"{MAPS}/a?fieldManager=updater", body)


@case(ownership=True)
def lists_by_key(t: Talk) -> None:
    def disks(*names: str, **more: Any) -> dict[str, Any]:
        return gadget("a", disks=[{"name": name, **more} for name in names])

    _apply(t, f"{GADGETS}/a", disks("x", "y"), "one")
    _apply(t, f"{GADGETS}/a", disks("z", bus="sata"), "two")
    _apply(t, f"{GADGETS}/a", disks("y"), "one")
    _apply(t, f"{GADGETS}/a", disks("y", bus="sata"), "two")
    _apply(t, f"{GADGETS}/a", disks("y", bus="sata"), "two", "&force=true")


@case(ownership=True)
def sets_and_atomic_parts(t: Talk) -> None:
    _apply(t, f"{GADGETS}/a", gadget("a", tags=["x", "y"], order=["1", "2"], selector={"k": "v"}), "one")
    _apply(t, f"{GADGETS}/a", gadget("a", tags=["y", "z"]), "two")
    _apply(t, f"{GADGETS}/a", gadget("a", order=["3"]), "two")
    _apply(t, f"{GADGETS}/a", gadget("a", selector={"l": "w"}), "two")
    _apply(t, f"{GADGETS}/a", gadget("a", selector={"l": "w"}, order=["3"]), "two", "&force=true")


@case(ownership=True)
def the_status(t: Talk) -> None:
    t.given(GADGETS + "?fieldManager=maker", gadget("a"))
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Up"}
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": "a"}, "status": ready}
    _apply(t, f"{GADGETS}/a/status", body, "one")
    other = body | {"status": {"conditions": [{"type": "Live", "status": "True"}]}}
    _apply(t, f"{GADGETS}/a/status", other, "two")
    _apply(t, f"{GADGETS}/a/status", body | {"status": {"phase": "Down"}}, "two")
    _apply(t, f"{GADGETS}/none/status", body | {"metadata": {"name": "none"}}, "one")


@case()
def bad_questions(t: Talk) -> None:
    t.patch(f"{MAPS}/a", _config(), APPLY)
    _apply(t, f"{MAPS}/a", {"metadata": {"name": "a"}}, "one")
    _apply(t, f"{MAPS}/a", _config() | {"kind": "Secret"}, "one")
    _apply(t, f"{MAPS}/a", _config() | {"metadata": {"name": "b"}}, "one")
    _apply(
        t, f"{MAPS}/a", _config() | {"metadata": {"name": "a", "uid": "11111111-2222-3333-4444-555555555555"}}, "one"
    )
    _apply(t, f"{MAPS}/a", _config() | {"metadata": {"name": "a", "resourceVersion": "1"}}, "one")
    t.patch(f"{MAPS}/a?force=true", {"data": {}}, MERGE)
    t.given(MAPS, {"metadata": {"name": "b"}})
    t.patch(f"{MAPS}/b?force=true", {"data": {}}, MERGE)


@case(words=False)
def bodies_that_cannot_be_read(t: Talk) -> None:
    _apply(t, f"{MAPS}/a", b"- list", "one")
    _apply(t, f"{MAPS}/a", b"a: b: c", "one")
    _apply(t, f"{MAPS}/a", b"", "one")


@case()
def with_own_managed_fields(t: Talk) -> None:
    entries = [{"manager": "x", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]
    _apply(t, f"{MAPS}/a", _config() | {"metadata": {"name": "a", "managedFields": entries}}, "one")


@case()
def in_yaml(t: Talk) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n"
    _apply(t, f"{MAPS}/a", body, "one")


@case()
def in_cbor_nobody(t: Talk) -> None:
    t.patch(f"{MAPS}/a?fieldManager=one", json.dumps(_config()).encode(), "application/apply-patch+json")


@case()
def dry(t: Talk) -> None:
    _apply(t, f"{MAPS}/a", _config(k="v"), "one", "&dryRun=All")
    t.get(f"{MAPS}/a")


@case(ownership=True)
def unknown_fields(t: Talk) -> None:
    _apply(t, f"{GADGETS}/a", gadget("a", sise=1), "one")
    _apply(t, f"{GADGETS}/a", gadget("a", sise=1), "one", "&fieldValidation=Strict")
    _apply(t, f"{MAPS}/a", _config(k="v") | {"dota": {}}, "one")


@case(ownership=True)
def a_pod(t: Talk) -> None:
    """Defaults belong to nobody who applied."""
    spec = {"schedulerName": "nobody", "automountServiceAccountToken": False}
    spec |= {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    made = _apply(t, f"{PODS}/p", body, "one")
    again = _apply(t, f"{PODS}/p", body, "one", pick=lambda _: "")
    t.note("the revision stays", again.revision == made.revision)
    t.send("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})


@case(ownership=True)
def removed_ownership(t: Talk) -> None:
    _apply(t, f"{MAPS}/a", _config(k="v"), "one")
    t.patch(f"{MAPS}/a", {"metadata": {"managedFields": [{}]}})
    t.patch(f"{MAPS}/a?fieldManager=two", {"data": {"k": "w"}})


@case()
def long_manager_names(t: Talk) -> None:
    t.create(f"{MAPS}?fieldManager={'m' * 129}", _config())
