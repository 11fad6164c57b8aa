"""Other resources for a Pod that runs: its subresource `resize`, which changes these and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from virt_local.apiserver.errors import ApiError

from .conftest import Client, pod

PODS = "/api/v1/namespaces/default/pods"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
CPU = "/spec/containers/0/resources/requests/cpu"


def sized() -> dict[str, Any]:
    body = pod()
    body["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "100m", "memory": "64Mi", "example.internal/thing": "1"},
        "limits": {"memory": "128Mi", "example.internal/thing": "1"},
    }
    return body


def test_resources_change_and_nothing_else(run: Any) -> None:
    async def scenario(client: Client) -> None:
        made = await client.send("POST", PODS, sized())
        assert (await client.send("GET", f"{PODS}/web/resize"))["metadata"]["uid"] == made["metadata"]["uid"]
        change = [
            {"op": "replace", "path": CPU, "value": "300m"},
            {"op": "replace", "path": "/spec/containers/0/image", "value": "other:1"},
            {"op": "add", "path": "/metadata/labels", "value": {"sneaked": "in"}},
        ]
        after = await client.send("PATCH", f"{PODS}/web/resize", change, content_type=JSON_PATCH)
        container = after["spec"]["containers"][0]
        assert container["resources"]["requests"]["cpu"] == "300m"
        assert container["image"] == made["spec"]["containers"][0]["image"]
        assert after["metadata"].get("labels") == made["metadata"].get("labels")
        assert after["metadata"]["generation"] == 2

    run(scenario)


def test_the_pod_itself_keeps_refusing(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", PODS, sized())
        change = [{"op": "replace", "path": CPU, "value": "300m"}]
        with pytest.raises(ApiError) as refused:
            await client.send("PATCH", f"{PODS}/web", change, content_type=JSON_PATCH)
        assert refused.value.code == 422

    run(scenario)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("requests/example.internal~1thing", "2", "only cpu and memory resources are mutable"),
        ("requests/memory", "1Gi", "must be less than or equal to memory limit of 128Mi"),
        ("requests/memory", "-1", "must be greater than or equal to 0"),
        ("requests", {"example.internal/thing": "1"}, "cannot be removed"),
        (
            "limits",
            {"cpu": "100m", "memory": "64Mi", "example.internal/thing": "1"},
            "Pod QOS Class may not change as a result of resizing",
        ),
    ],
)
def test_what_may_not_change_is_named(run: Any, path: str, value: Any, words: str) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", PODS, sized())
        change = [{"op": "add", "path": f"/spec/containers/0/resources/{path}", "value": value}]
        with pytest.raises(ApiError) as refused:
            await client.send("PATCH", f"{PODS}/web/resize", change, content_type=JSON_PATCH)
        assert refused.value.code == 422
        assert words in refused.value.message

    run(scenario)
