"""CustomResourceDefinitions and their objects."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from virt_local.apiserver.errors import ApiError

from .conftest import Client

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/example.com/v1/namespaces/default/things"
MERGE = "application/merge-patch+json"


def crd(**extra: Any) -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "minimum": 1},
            "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
            "replicas": {"type": "integer"},
            "disks": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        },
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        **extra,
    }
    older = {"name": "v1alpha1", "served": True, "storage": False, "schema": version["schema"]}
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [version, older],
        },
    }


def thing(name: str = "one", **spec: Any) -> dict[str, Any]:
    body = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}}
    return body | {"spec": {"size": 1, **spec}}


def test_a_crd_serves_at_once(run: Any) -> None:
    async def scenario(client: Client) -> None:
        made = await client.send("POST", CRDS, crd())
        states = {c["type"]: c["status"] for c in made["status"]["conditions"]}
        assert states == {"NamesAccepted": "True", "Established": "True"}
        assert made["status"]["storedVersions"] == ["v1"]
        made = await client.send("POST", THINGS, thing())
        assert made["spec"] == {"size": 1, "color": "red"}
        assert made["metadata"]["generation"] == 1

    run(scenario)


def test_every_wrong_field_is_named(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", CRDS, crd())
        body = thing(size=0, color="blue", disks=[{"name": 1}])
        with pytest.raises(ApiError) as refused:
            await client.send("POST", THINGS, body)
        error = refused.value
        assert (error.code, error.reason, error.kind) == (422, "Invalid", "Thing")
        assert {cause.field: cause.reason for cause in error.causes} == {
            "spec.size": "FieldValueInvalid",
            "spec.color": "FieldValueNotSupported",
            "spec.disks[0].name": "FieldValueTypeInvalid",
        }
        missing = thing()
        del missing["spec"]["size"]
        with pytest.raises(ApiError) as refused:
            await client.send("POST", THINGS, missing)
        assert refused.value.message == 'Thing.example.com "one" is invalid: spec.size: Required value'

    run(scenario)


def test_unknown_fields_are_pruned(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", CRDS, crd())
        made = await client.send("POST", THINGS, thing(sise=2, disks=[{"name": "a", "bus": "x"}]))
        assert made["spec"] == {"size": 1, "color": "red", "disks": [{"name": "a"}]}
        assert client.warnings == ['unknown field "spec.disks[0].bus"', 'unknown field "spec.sise"']

    run(scenario)


def test_status_is_a_place_of_its_own(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", CRDS, crd())
        made = await client.send("POST", THINGS, thing() | {"status": {"phase": "x"}})
        assert "status" not in made
        patch = {"status": {"phase": "Running"}, "spec": {"size": 9}, "metadata": {"labels": {"a": "b"}}}
        after = await client.send("PATCH", f"{THINGS}/one/status", patch, content_type=MERGE)
        assert (after["status"], after["spec"]["size"]) == ({"phase": "Running"}, 1)
        assert "labels" not in after["metadata"]
        assert after["metadata"]["generation"] == 1
        after = await client.send("PATCH", f"{THINGS}/one", {"spec": {"size": 9}}, content_type=MERGE)
        assert after["metadata"]["generation"] == 2

    run(scenario)


def test_versions_show_the_same_object(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", CRDS, crd())
        older = "/apis/example.com/v1alpha1/namespaces/default/things"
        await client.send("POST", older, thing() | {"apiVersion": "example.com/v1alpha1"})
        assert (await client.send("GET", f"{THINGS}/one"))["apiVersion"] == "example.com/v1"
        assert (await client.send("GET", f"{older}/one"))["apiVersion"] == "example.com/v1alpha1"

    run(scenario)


def test_an_update_names_the_revision_it_is_based_on(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", CRDS, crd())
        made = await client.send("POST", THINGS, thing())
        with pytest.raises(ApiError) as refused:
            await client.send("PUT", f"{THINGS}/one", thing(size=2))
        assert (refused.value.code, refused.value.causes[0].field) == (422, "metadata.resourceVersion")
        made["spec"]["size"] = 2
        assert (await client.send("PUT", f"{THINGS}/one", made))["spec"]["size"] == 2

    run(scenario)


def test_scale(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", CRDS, crd())
        await client.send("POST", THINGS, thing(replicas=2))
        scale = await client.send("GET", f"{THINGS}/one/scale")
        assert (scale["kind"], scale["spec"]["replicas"]) == ("Scale", 2)
        scale = await client.send("PATCH", f"{THINGS}/one/scale", {"spec": {"replicas": 5}}, content_type=MERGE)
        assert scale["spec"]["replicas"] == 5
        assert (await client.send("GET", f"{THINGS}/one"))["spec"]["replicas"] == 5

    run(scenario)


def test_objects_outlive_an_update_of_their_crd_and_a_restart(run: Any) -> None:
    async def write(client: Client) -> None:
        await client.send("POST", CRDS, crd())
        await client.send("POST", THINGS, thing())
        current = await client.send("GET", f"{CRDS}/things.example.com")
        current["spec"]["names"]["shortNames"] = ["thi"]
        await client.send("PUT", f"{CRDS}/things.example.com", current)
        assert (await client.send("GET", f"{THINGS}/one"))["spec"]["size"] == 1

    async def read(client: Client) -> None:
        assert (await client.send("GET", f"{THINGS}/one"))["spec"]["size"] == 1
        kind = client.server.catalog.find("example.com", "v1", "things")
        assert kind is not None
        assert kind.short_names == ("thi",)

    run(write)
    run(read)


def test_a_deleted_crd_takes_its_objects_along(run: Any) -> None:
    async def scenario(client: Client) -> None:
        cleaner = asyncio.create_task(client.server.crds.run())
        await client.send("POST", CRDS, crd())
        await client.send("POST", THINGS, thing())
        held = thing("held")
        held["metadata"]["finalizers"] = ["example.com/x"]
        await client.send("POST", THINGS, held)
        await client.send("DELETE", f"{CRDS}/things.example.com")
        await _until(lambda: client.server.store.count("things.example.com") == 1)
        await client.send("PATCH", f"{THINGS}/held", {"metadata": {"finalizers": None}}, content_type=MERGE)
        await _until(lambda: client.server.catalog.find("example.com", "v1", "things") is None)
        assert client.server.store.count("customresourcedefinitions.apiextensions.k8s.io") == 0
        cleaner.cancel()

    run(scenario)


async def _until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda spec: spec["names"].update(plural="other"), "metadata.name"),
        (lambda spec: spec.update(scope="Galaxy"), "spec.scope"),
        (lambda spec: spec["versions"][1].update(storage=True), "spec.versions"),
        (lambda spec: spec["versions"][0].pop("schema"), "spec.versions[0].schema.openAPIV3Schema"),
    ],
)
def test_a_bad_crd_is_refused(run: Any, change: Any, field: str) -> None:
    async def scenario(client: Client) -> None:
        body = crd()
        change(body["spec"])
        with pytest.raises(ApiError) as refused:
            await client.send("POST", CRDS, body)
        assert field in {cause.field for cause in refused.value.causes}

    run(scenario)


def test_names_that_are_taken_are_not_accepted(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", CRDS, crd())
        other = crd()
        other["metadata"]["name"] = "others.example.com"
        other["spec"]["names"]["plural"] = "others"
        made = await client.send("POST", CRDS, other)
        states = {c["type"]: c["status"] for c in made["status"]["conditions"]}
        assert states == {"NamesAccepted": "False", "Established": "False"}
        assert client.server.catalog.find("example.com", "v1", "others") is None

    run(scenario)
