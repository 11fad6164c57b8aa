"""A life of an object: create, get, update, and everything that can be wrong with a body or a name."""

from __future__ import annotations

from typing import Any

from contract.table import case
from contract.talk import GADGETS, GROUP, MAPS, Talk


def config(name: str = "a", **data: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data or {"k": "v"}}


@case()
def life(t: Talk) -> None:
    t.create(MAPS, config())
    t.create(MAPS, config())
    made = t.get(f"{MAPS}/a").body
    t.update(f"{MAPS}/a", made | {"data": {"k": "w"}})
    t.update(f"{MAPS}/a", made | {"data": {"k": "x"}})
    t.delete(f"{MAPS}/a")
    t.get(f"{MAPS}/a")
    t.delete(f"{MAPS}/a")


@case()
def update_without_revision(t: Talk) -> None:
    t.given(MAPS, config())
    t.update(f"{MAPS}/a", config(k="other"))


@case()
def update_that_changes_nothing(t: Talk) -> None:
    made = t.given(MAPS, config())
    again = t.update(f"{MAPS}/a", made.body)
    t.note("the revision stays", again.revision == made.revision)


@case()
def update_of_a_missing_object(t: Talk) -> None:
    t.update(f"{MAPS}/none", config("none"))


@case()
def update_with_another_uid(t: Talk) -> None:
    made = t.given(MAPS, config()).body
    made["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    t.update(f"{MAPS}/a", made)


@case()
def update_under_another_name(t: Talk) -> None:
    made = t.given(MAPS, config())
    t.update(f"{MAPS}/b", made.body)
    t.given(MAPS, config("b"))
    t.update(f"{MAPS}/b", made.body)


@case()
def update_of_metadata_that_is_fixed(t: Talk) -> None:
    made = t.given(MAPS, config()).body
    made["metadata"] |= {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7, "generateName": "x-"}
    t.update(f"{MAPS}/a", made)


@case()
def wrong_kind(t: Talk) -> None:
    t.create(MAPS, config(k="dg==") | {"kind": "Secret"})
    t.create(MAPS, config() | {"apiVersion": "v2"})
    t.create(GADGETS, {"apiVersion": f"{GROUP}/v1", "kind": "Gizmo", "metadata": {"name": "a"}})
    t.create(GADGETS, {"apiVersion": f"{GROUP}/v2", "kind": "Gadget", "metadata": {"name": "a"}})


@case()
def without_kind(t: Talk) -> None:
    t.create(MAPS, {"metadata": {"name": "a"}})
    t.create(GADGETS, {"metadata": {"name": "a"}, "spec": {"size": 1}})


@case()
def wrong_namespace(t: Talk) -> None:
    body = config()
    body["metadata"] = {"name": "a", "namespace": "elsewhere"}
    t.create(MAPS, body)


@case()
def missing_namespace(t: Talk) -> None:
    t.create("/api/v1/namespaces/contract-nowhere/configmaps", config())
    t.get("/api/v1/namespaces/contract-nowhere/configmaps")
    t.get("/api/v1/namespaces/contract-nowhere/configmaps/a")
    gadget = {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": {"size": 1}}
    t.create(f"/apis/{GROUP}/v1/namespaces/contract-nowhere/gadgets", gadget)


@case(words=False)
def malformed_bodies(t: Talk) -> None:
    for body in (b"{", b"", b"[]", b'"text"', b"null", b"{} {}", b'{"metadata": 7}', b'{"metadata": {"name": 7}}'):
        t.create(MAPS, body)


@case(words=False)
def malformed_bodies_of_custom_objects(t: Talk) -> None:
    for body in (b"{", b"", b"[]", b'"text"', b'{"metadata": 7}', b'{"metadata": {"name": 7}}'):
        t.create(GADGETS, body)


@case()
def yaml_bodies(t: Talk) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {when: '2020-01-01'}\n"
    t.create(MAPS, body, content_type="application/yaml")


@case(words=False)
def unknown_content_type(t: Talk) -> None:
    t.create(MAPS, config(), content_type="application/x-www-form-urlencoded")
    t.create(GADGETS, config(), content_type="text/plain")


@case()
def revision_on_create(t: Talk) -> None:
    body = config()
    body["metadata"] = {"name": "a", "resourceVersion": "7"}
    t.create(MAPS, body)


@case()
def server_metadata_on_create(t: Talk) -> None:
    body = config()
    body["metadata"] = {
        "name": "a",
        "uid": "11111111-2222-3333-4444-555555555555",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 3,
        "generation": 5,
        "selfLink": "/x",
    }
    t.create(MAPS, body)


@case(words=False)
def bad_names(t: Talk) -> None:
    for name in ("Upper", "a_b", "-a", "a" * 254, "a/b", "."):
        t.create(MAPS, config(name))
    t.create("/api/v1/namespaces", {"metadata": {"name": "Contract.Bad"}})
    t.create(GADGETS, {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": "B"}, "spec": {"size": 1}})


@case()
def no_name(t: Talk) -> None:
    t.create(MAPS, {"metadata": {}, "data": {}})
    t.create(GADGETS, {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {}, "spec": {"size": 1}})


@case()
def generated_names(t: Talk) -> None:
    t.create(MAPS, {"metadata": {"generateName": "made-"}})
    t.create(MAPS, {"metadata": {"generateName": "made-", "name": "own"}})
    long = t.send("POST", MAPS, {"metadata": {"generateName": "x" * 100}}).body["metadata"]["name"]
    t.note("length of a long generated name", len(long))


@case(words=False)
def bad_labels(t: Talk) -> None:
    for labels in ({"a b": "c"}, {"a": "b c"}, {"a": "x" * 64}, {"/a": "b"}, {"A.com/b/c": "d"}):
        t.create(MAPS, {"metadata": {"name": "a", "labels": labels}})
    t.create(MAPS, {"metadata": {"name": "a", "annotations": {"a b": "c"}}})
    t.create(MAPS, {"metadata": {"name": "a", "annotations": {"a": "x" * (257 << 10)}}})


@case(words=False)
def bad_owners_and_finalizers(t: Talk) -> None:
    for owner in ({"apiVersion": "v1", "kind": "Pod"}, {"name": "x", "uid": "y"}, {}):
        t.create(MAPS, {"metadata": {"name": "a", "ownerReferences": [owner]}})
    leader: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "name": "p", "controller": True}
    owners = [leader | {"uid": "u1"}, leader | {"uid": "u2"}]
    t.create(MAPS, {"metadata": {"name": "a", "ownerReferences": owners}})
    t.create(MAPS, {"metadata": {"name": "a", "finalizers": ["not valid"]}})


@case()
def methods_that_do_not_fit(t: Talk) -> None:
    t.given(MAPS, config())
    t.call("POST", f"{MAPS}/a", config())
    t.call("PUT", MAPS, config())
    t.call("PATCH", MAPS, {}, content_type="application/merge-patch+json")
    t.call("POST", "/api/v1/configmaps", config())
    t.call("DELETE", "/api/v1/configmaps?dryRun=All&labelSelector=nobody%3Dhas")
    t.call("POST", "/api/v1/nodes/none", {})
    t.call("POST", f"{GADGETS}/a", {})
    t.call("PUT", GADGETS, {})


@case()
def places_that_do_not_exist(t: Talk) -> None:
    for path in (
        "/api/v1/namespaces/{ns}/nothings",
        "/api/v1/namespaces/{ns}/configmaps/a/status",
        "/api/v2/configmaps",
        "/apis/nowhere.virtpod.test/v1/things",
        f"/apis/{GROUP}/v9/gadgets",
        f"/apis/{GROUP}/v1/nothings",
        f"{GADGETS}/a/nothing",
        "/apis/apps/v1/nothings",
        "/nowhere",
        "/api/v1/configmaps/a",
    ):
        t.get(path)


@case()
def too_large(t: Talk) -> None:
    t.create(MAPS, config(k="x" * ((3 << 20) + 1)))


@case(words=False)
def larger_than_a_config_map_may_be(t: Talk) -> None:
    t.create(MAPS, config(k="x" * ((1 << 20) + 1)))


@case()
def get_with_revision(t: Talk) -> None:
    made = t.given(MAPS, config())
    t.get(f"{MAPS}/a?resourceVersion=0", pick=lambda body: body["metadata"]["name"])
    t.get(f"{MAPS}/a?resourceVersion={made.revision}")
    t.get(f"{MAPS}/a?resourceVersion=abc")
