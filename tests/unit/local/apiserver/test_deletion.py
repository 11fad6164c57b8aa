"""Finalizers, grace, preconditions, propagation and what is left in the end."""

from __future__ import annotations

from typing import Any

import pytest

from virt_local.apiserver.errors import ApiError

from .conftest import Client, config_map, pod

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
MERGE = "application/merge-patch+json"


async def _bound(client: Client, name: str = "web") -> None:
    await client.send("POST", PODS, pod(name))
    await client.send("POST", f"{PODS}/{name}/binding", {"target": {"name": "node1"}})


def test_plain_delete_answers_with_a_status(run: Any) -> None:
    async def scenario(client: Client) -> None:
        made = await client.send("POST", MAPS, config_map("a"))
        answer = await client.send("DELETE", f"{MAPS}/a")
        assert (answer["kind"], answer["status"]) == ("Status", "Success")
        assert answer["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
        with pytest.raises(ApiError) as refused:
            await client.send("DELETE", f"{MAPS}/a")
        assert refused.value.message == 'configmaps "a" not found'

    run(scenario)


def test_finalizers_hold_an_object_until_the_last_is_gone(run: Any) -> None:
    async def scenario(client: Client) -> None:
        body = config_map("a")
        body["metadata"]["finalizers"] = ["example.com/x"]
        await client.send("POST", MAPS, body)
        marked = await client.send("DELETE", f"{MAPS}/a")
        assert marked["metadata"]["deletionTimestamp"]
        more = {"metadata": {"finalizers": ["example.com/x", "example.com/y"]}}
        with pytest.raises(ApiError) as refused:
            await client.send("PATCH", f"{MAPS}/a", more, content_type=MERGE)
        assert refused.value.code == 422
        await client.send("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, content_type=MERGE)
        assert client.server.store.get("configmaps", "default", "a") is None

    run(scenario)


def test_a_running_pod_is_removed_by_its_node(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await _bound(client)
        marked = await client.send("DELETE", f"{PODS}/web")
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
        shorter = await client.send("DELETE", f"{PODS}/web", {"gracePeriodSeconds": 5})
        assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
        longer = await client.send("DELETE", f"{PODS}/web", {"gracePeriodSeconds": 50})
        assert longer["metadata"]["deletionGracePeriodSeconds"] == 5
        assert client.server.store.get("pods", "default", "web") is not None
        await client.send("DELETE", f"{PODS}/web", {"gracePeriodSeconds": 0})
        assert client.server.store.get("pods", "default", "web") is None

    run(scenario)


def test_a_pod_without_a_node_goes_at_once(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", PODS, pod())
        await client.send("DELETE", f"{PODS}/web")
        assert client.server.store.get("pods", "default", "web") is None

    run(scenario)


def test_preconditions(run: Any) -> None:
    async def scenario(client: Client) -> None:
        made = await client.send("POST", MAPS, config_map("a"))
        for wrong in ({"uid": "other"}, {"resourceVersion": "1"}):
            with pytest.raises(ApiError) as refused:
                await client.send("DELETE", f"{MAPS}/a", {"preconditions": wrong})
            assert refused.value.code == 409
        await client.send("DELETE", f"{MAPS}/a", {"preconditions": {"uid": made["metadata"]["uid"]}})

    run(scenario)


@pytest.mark.parametrize(("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")])
def test_propagation_leaves_a_finalizer_for_the_collector(run: Any, policy: str, finalizer: str) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", MAPS, config_map("a"))
        marked = await client.send("DELETE", f"{MAPS}/a", {"propagationPolicy": policy})
        assert marked["metadata"]["finalizers"] == [finalizer]

    run(scenario)


def test_delete_collection_takes_what_the_selector_chooses(run: Any) -> None:
    async def scenario(client: Client) -> None:
        for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
            body = config_map(name)
            body["metadata"]["labels"] = {"l": label}
            await client.send("POST", MAPS, body)
        await client.send("DELETE", MAPS, labelSelector="l=x")
        left = {item["metadata"]["name"] for item in (await client.send("GET", MAPS))["items"]}
        assert left == {"c", "kube-root-ca.crt"}

    run(scenario)


def test_namespace_goes_when_it_is_finalized(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
        marked = await client.send("DELETE", "/api/v1/namespaces/n")
        assert marked["status"]["phase"] == "Terminating"
        with pytest.raises(ApiError) as refused:
            await client.send("POST", "/api/v1/namespaces/n/configmaps", config_map("a"))
        assert refused.value.code == 403
        assert refused.value.causes[0].reason == "NamespaceTerminating"
        marked["spec"]["finalizers"] = []
        await client.send("PUT", "/api/v1/namespaces/n/finalize", marked)
        assert client.server.store.get("namespaces", "", "n") is None

    run(scenario)


def test_the_default_namespace_stays(run: Any) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(ApiError) as refused:
            await client.send("DELETE", "/api/v1/namespaces/default")
        assert refused.value.code == 403

    run(scenario)


def test_a_pod_is_bound_once(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await _bound(client)
        bound = await client.send("GET", f"{PODS}/web")
        assert bound["spec"]["nodeName"] == "node1"
        assert bound["status"]["conditions"][0]["type"] == "PodScheduled"
        with pytest.raises(ApiError) as refused:
            await client.send("POST", f"{PODS}/web/binding", {"target": {"name": "node2"}})
        assert refused.value.code == 409

    run(scenario)


def test_eviction_respects_the_disruption_budget(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await _bound(client)
        patch = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
        await client.send("PATCH", f"{PODS}/web/status", patch, content_type=MERGE)
        budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        body = {"metadata": {"name": "p"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "minAvailable": 1}}
        await client.send("POST", budgets, body)
        with pytest.raises(ApiError) as refused:
            await client.send("POST", f"{PODS}/web/eviction", {"metadata": {"name": "web"}})
        assert (refused.value.code, refused.value.causes[0].reason) == (429, "DisruptionBudget")
        status = {"status": {"disruptionsAllowed": 1, "observedGeneration": 1}}
        await client.send("PATCH", f"{budgets}/p/status", status, content_type=MERGE)
        await client.send("POST", f"{PODS}/web/eviction", {"metadata": {"name": "web"}})
        assert (await client.send("GET", f"{PODS}/web"))["metadata"]["deletionTimestamp"]
        assert (await client.send("GET", f"{budgets}/p"))["status"]["disruptionsAllowed"] == 0

    run(scenario)
