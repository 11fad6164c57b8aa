"""Create, read, update, patch and delete, without HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from virt_local.apiserver.errors import ApiError

from .conftest import Client, config_map, pod

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


def test_create_fills_in_what_only_the_server_knows(run: Any) -> None:
    async def scenario(client: Client) -> None:
        made = await client.send("POST", PODS, pod())
        assert made["metadata"]["uid"]
        assert made["metadata"]["creationTimestamp"].endswith("Z")
        assert made["metadata"]["generation"] == 1
        assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
        assert made["spec"]["restartPolicy"] == "Always"
        assert made["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"

    run(scenario)


def test_create_twice_conflicts(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", MAPS, config_map("a"))
        with pytest.raises(ApiError) as refused:
            await client.send("POST", MAPS, config_map("a"))
        assert (refused.value.code, refused.value.reason) == (409, "AlreadyExists")
        assert refused.value.message == 'configmaps "a" already exists'

    run(scenario)


def test_generate_name(run: Any) -> None:
    async def scenario(client: Client) -> None:
        body = config_map("")
        body["metadata"] = {"generateName": "x-"}
        names = {(await client.send("POST", MAPS, body))["metadata"]["name"] for _ in range(3)}
        assert len(names) == 3
        assert all(name.startswith("x-") and len(name) == 7 for name in names)

    run(scenario)


def test_namespace_must_exist(run: Any) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(ApiError) as refused:
            await client.send("POST", "/api/v1/namespaces/nope/configmaps", config_map("a"))
        assert refused.value.message == 'namespaces "nope" not found'

    run(scenario)


def test_new_namespace_gets_an_account_and_the_root_certificate(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
        assert client.server.store.get("serviceaccounts", "n", "default") is not None
        config = client.server.store.get("configmaps", "n", "kube-root-ca.crt")
        assert config is not None
        assert config.object()["data"] == {"ca.crt": "PEM"}

    run(scenario)


def test_update_with_an_old_revision_conflicts(run: Any) -> None:
    async def scenario(client: Client) -> None:
        first = await client.send("POST", MAPS, config_map("a", k="1"))
        second = await client.send("PUT", f"{MAPS}/a", first | {"data": {"k": "2"}})
        assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
        with pytest.raises(ApiError) as refused:
            await client.send("PUT", f"{MAPS}/a", first | {"data": {"k": "3"}})
        assert (refused.value.code, refused.value.reason) == (409, "Conflict")

    run(scenario)


def test_update_that_changes_nothing_writes_nothing(run: Any) -> None:
    async def scenario(client: Client) -> None:
        first = await client.send("POST", MAPS, config_map("a", k="1"))
        second = await client.send("PUT", f"{MAPS}/a", first)
        assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]

    run(scenario)


def test_update_keeps_what_the_server_owns(run: Any) -> None:
    async def scenario(client: Client) -> None:
        first = await client.send("POST", MAPS, config_map("a"))
        body = config_map("a", k="2")
        body["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z"
        second = await client.send("PUT", f"{MAPS}/a", body)
        assert second["metadata"]["uid"] == first["metadata"]["uid"]
        assert second["metadata"]["creationTimestamp"] == first["metadata"]["creationTimestamp"]
        body["metadata"]["uid"] = "another"
        with pytest.raises(ApiError) as refused:
            await client.send("PUT", f"{MAPS}/a", body)
        assert refused.value.code == 409

    run(scenario)


def test_status_and_spec_are_written_apart(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", PODS, pod())
        status = {"status": {"phase": "Running"}, "spec": {"nodeName": "n"}}
        after = await client.send("PATCH", f"{PODS}/web/status", status, content_type=MERGE)
        assert after["status"]["phase"] == "Running"
        assert after["status"]["qosClass"] == "BestEffort"
        assert "nodeName" not in after["spec"]
        change = {"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "b"}}}
        after = await client.send("PATCH", f"{PODS}/web", change, content_type=MERGE)
        assert (after["status"]["phase"], after["metadata"]["labels"]) == ("Running", {"a": "b"})

    run(scenario)


def test_a_pod_spec_does_not_change(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", PODS, pod())
        with pytest.raises(ApiError) as refused:
            await client.send("PATCH", f"{PODS}/web", {"spec": {"hostname": "x"}}, content_type=MERGE)
        assert refused.value.code == 422
        assert refused.value.causes[0].field == "spec"
        image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "busybox:2"}]
        after = await client.send("PATCH", f"{PODS}/web", image, content_type=JSON_PATCH)
        assert after["spec"]["containers"][0]["image"] == "busybox:2"
        assert after["metadata"]["generation"] == 2

    run(scenario)


def test_json_patch_test_fails_as_422(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", MAPS, config_map("a", k="1"))
        patch = [{"op": "test", "path": "/data/k", "value": "2"}]
        with pytest.raises(ApiError) as refused:
            await client.send("PATCH", f"{MAPS}/a", patch, content_type=JSON_PATCH)
        assert (refused.value.code, refused.value.reason) == (422, "Invalid")

    run(scenario)


def test_patch_with_an_old_revision_conflicts(run: Any) -> None:
    async def scenario(client: Client) -> None:
        await client.send("POST", MAPS, config_map("a", k="1"))
        patch = {"metadata": {"resourceVersion": "1"}, "data": {"k": "2"}}
        with pytest.raises(ApiError) as refused:
            await client.send("PATCH", f"{MAPS}/a", patch, content_type=MERGE)
        assert refused.value.code == 409

    run(scenario)


def test_dry_run_stores_nothing(run: Any) -> None:
    async def scenario(client: Client) -> None:
        before = client.server.store.revision
        made = await client.send("POST", MAPS, config_map("a"), dryRun="All")
        assert made["metadata"]["uid"]
        assert client.server.store.revision == before
        with pytest.raises(ApiError):
            await client.send("GET", f"{MAPS}/a")

    run(scenario)


def test_unknown_fields_are_refused_warned_about_or_ignored(run: Any) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(ApiError) as refused:
            await client.send("POST", PODS, pod(nodename="x"), fieldValidation="Strict")
        assert refused.value.code == 400
        assert 'unknown field "spec.nodename"' in refused.value.message
        made = await client.send("POST", PODS, pod(nodename="x"))
        assert "nodename" not in made["spec"]
        assert client.warnings == ['unknown field "spec.nodename"']
        await client.send("POST", PODS, pod("b", nodename="x"), fieldValidation="Ignore")
        assert client.warnings == []

    run(scenario)


def test_wrong_type_of_a_built_in_field_is_a_bad_request(run: Any) -> None:
    async def scenario(client: Client) -> None:
        with pytest.raises(ApiError) as refused:
            await client.send("POST", PODS, pod(hostNetwork="yes"))
        assert refused.value.code == 400
        assert "spec.hostNetwork" in refused.value.message

    run(scenario)


def test_secret_string_data_is_encoded(run: Any) -> None:
    async def scenario(client: Client) -> None:
        body = {"metadata": {"name": "s"}, "stringData": {"p": "q"}}
        made = await client.send("POST", "/api/v1/namespaces/default/secrets", body)
        assert made["data"] == {"p": "cQ=="}
        assert "stringData" not in made

    run(scenario)


def test_events_show_under_both_groups(run: Any) -> None:
    async def scenario(client: Client) -> None:
        event = {
            "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"},
            "message": "hello",
            "reason": "R",
        }
        await client.send("POST", "/api/v1/namespaces/default/events", event)
        path = "/apis/events.k8s.io/v1/namespaces/default/events"
        seen = await client.send("GET", f"{path}/e")
        assert (seen["apiVersion"], seen["note"], seen["regarding"]["name"]) == ("events.k8s.io/v1", "hello", "web")
        listed = await client.send("GET", path, fieldSelector="regarding.name=web")
        assert len(listed["items"]) == 1

    run(scenario)


def test_everything_is_there_after_a_restart(run: Any) -> None:
    async def write(client: Client) -> None:
        made = await client.send("POST", MAPS, config_map("a", k="1"))
        client.server.root_ca = made["metadata"]["resourceVersion"]
        await client.send("DELETE", f"{MAPS}/a")
        await client.send("POST", MAPS, config_map("b", k="2"))

    async def read(client: Client) -> None:
        found = await client.send("GET", f"{MAPS}/b")
        assert found["data"] == {"k": "2"}
        with pytest.raises(ApiError):
            await client.send("GET", f"{MAPS}/a")
        assert client.server.store.revision >= int(found["metadata"]["resourceVersion"])

    run(write)
    run(read)
