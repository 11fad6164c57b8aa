"""Tables, discovery and OpenAPI as documents."""

from __future__ import annotations

from typing import Any

import msgspec

from virt_local.apiserver.builtins import cells
from virt_local.apiserver.builtins.pod_defaults import pull_policy, qos_class
from virt_local.apiserver.builtins.table import BUILTIN_KINDS
from virt_local.apiserver.catalog import Catalog
from virt_local.apiserver.crds.kinds import kinds_of
from virt_local.apiserver.discovery.aggregated import discovery_list, wanted_version
from virt_local.apiserver.discovery.groups import group_list, resource_list
from virt_local.apiserver.discovery.openapi import OpenApi
from virt_local.apiserver.output.negotiate import Form, Wanted
from virt_local.apiserver.output.table import table

from .test_crds import crd


def test_every_kind_has_columns_and_a_schema() -> None:
    for kind in BUILTIN_KINDS:
        assert kind.node.properties
        if not kind.virtual:
            empty = {"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}}
            row = table(kind, [empty], {}, Wanted(Form.TABLE, include="None"))["rows"][0]
            assert len(row["cells"]) == len(kind.columns) > 1


def _pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}, "status": status}


def _container(**state: Any) -> dict[str, Any]:
    return {"name": "c", "ready": False, "state": state}


def test_pod_status_says_the_most_telling_word() -> None:
    assert cells.pod_status(_pod(phase="Pending")) == "Pending"
    waiting = _container(waiting={"reason": "ImagePullBackOff"})
    assert cells.pod_status(_pod(phase="Pending", containerStatuses=[waiting])) == "ImagePullBackOff"
    ended = _container(terminated={"exitCode": 137})
    assert cells.pod_status(_pod(phase="Failed", containerStatuses=[ended])) == "ExitCode:137"
    going = _pod(phase="Running")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert cells.pod_status(going) == "Terminating"
    init = _container(waiting={"reason": "PodInitializing"})
    starting = _pod(phase="Pending", initContainerStatuses=[init])
    starting["spec"]["initContainers"] = [{"name": "i"}]
    assert cells.pod_status(starting) == "Init:0/1"


def test_pull_policy_and_quality_of_service() -> None:
    assert pull_policy("a/b:latest") == pull_policy("a/b") == "Always"
    assert pull_policy("host:5000/a/b:1") == pull_policy("a@sha256:0") == "IfNotPresent"
    both = {"cpu": "1", "memory": "1Gi"}
    assert qos_class({"containers": [{"resources": {"limits": both, "requests": both}}]}) == "Guaranteed"
    assert qos_class({"containers": [{"resources": {"requests": {"cpu": "1"}}}]}) == "Burstable"
    assert qos_class({"containers": [{}]}) == "BestEffort"


def _catalog() -> Catalog:
    catalog = Catalog()
    definition = crd(additionalPrinterColumns=[{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}])
    catalog.replace_custom("things.example.com", kinds_of(definition))
    return catalog


def test_custom_columns() -> None:
    kind = _catalog().find("example.com", "v1", "things")
    assert kind is not None
    made = table(
        kind,
        [{"metadata": {"name": "one"}, "spec": {"size": 3}}, {"metadata": {"name": "two"}}],
        {},
        Wanted(Form.TABLE, include="None"),
    )
    assert [row["cells"] for row in made["rows"]] == [["one", 3], ["two", None]]


def test_discovery_joins_what_other_servers_answer() -> None:
    remote = [{"metadata": {"name": "far.io"}, "versions": [{"version": "v1", "resources": []}]}]
    catalog = _catalog()
    names = [group for group in catalog.groups() if group]
    found = discovery_list(catalog, "v2", names, remote)
    by_name = {item["metadata"].get("name", ""): item for item in found["items"]}
    assert [v["version"] for v in by_name["example.com"]["versions"]] == ["v1", "v1alpha1"]
    things = by_name["example.com"]["versions"][0]["resources"][0]
    assert (things["resource"], things["shortNames"]) == ("things", ["th"])
    assert [sub["subresource"] for sub in things["subresources"]] == ["status", "scale"]
    assert "far.io" in by_name
    assert "far.io" in {group["name"] for group in group_list(catalog, remote)["groups"]}
    listed = resource_list(catalog, "", "v1")
    assert listed is not None
    assert "pods/exec" in {resource["name"] for resource in listed["resources"]}


def test_clients_that_do_not_know_it_get_the_older_discovery() -> None:
    assert wanted_version("application/json") == ""
    newest = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    assert wanted_version(f"{newest},application/json") == "v2"
    assert wanted_version(f"application/json,{newest}") == ""


def test_openapi_follows_the_served_kinds() -> None:
    catalog = _catalog()
    openapi = OpenApi(catalog)
    before = openapi.index()["paths"]["apis/example.com/v1"]["serverRelativeURL"]
    text = openapi.document("apis/example.com/v1")
    assert text is not None
    document = msgspec.json.decode(text)
    schema = document["components"]["schemas"]["com.example.v1.Thing"]
    assert schema["x-kubernetes-group-version-kind"] == [{"group": "example.com", "version": "v1", "kind": "Thing"}]
    patch = document["paths"]["/apis/example.com/v1/namespaces/{namespace}/things/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]
    catalog.replace_custom("things.example.com", kinds_of(crd())[:1])
    assert openapi.document("apis/example.com/v1alpha1") is None
    changed = crd()
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "new"
    catalog.replace_custom("things.example.com", kinds_of(changed))
    assert openapi.index()["paths"]["apis/example.com/v1"]["serverRelativeURL"] != before


def test_every_reference_in_openapi_leads_somewhere() -> None:
    openapi = OpenApi(_catalog())
    for path in openapi.index()["paths"]:
        document = openapi.document(path)
        assert document is not None
        known = msgspec.json.decode(document)["components"]["schemas"]
        for reference in _references(msgspec.json.decode(document)):
            assert reference.removeprefix("#/components/schemas/") in known


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        found = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return found + [reference for item in value.values() for reference in _references(item)]
    if isinstance(value, list):
        return [reference for item in value for reference in _references(item)]
    return []
