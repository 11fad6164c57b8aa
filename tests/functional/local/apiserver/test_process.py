"""The API server as a process: what it promises when it is killed, and over HTTP."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import ApiServer

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ApiServer]:
    api = ApiServer(tmp_path)
    api.start()
    yield api
    if api.process is not None and api.process.poll() is None:
        api.kill()


def _writer(server: ApiServer, name: str, acknowledged: list[str]) -> None:
    for number in range(10_000):
        body = {"metadata": {"name": f"{name}-{number}"}, "data": {"k": "v" * 200}}
        try:
            server.request("POST", MAPS, body)
        except (OSError, http.client.HTTPException):
            return
        acknowledged.append(body["metadata"]["name"])


def test_kill_9_loses_no_acknowledged_write(own: ApiServer) -> None:
    acknowledged: list[list[str]] = [[] for _ in range(4)]
    for turn in range(3):
        threads = [
            threading.Thread(target=_writer, args=(own, f"t{turn}w{i}", names)) for i, names in enumerate(acknowledged)
        ]
        for thread in threads:
            thread.start()
        wanted = sum(map(len, acknowledged)) + 100
        deadline = time.monotonic() + 20
        while sum(map(len, acknowledged)) < wanted and time.monotonic() < deadline:
            time.sleep(0.01)
        own.kill(signal.SIGKILL)
        for thread in threads:
            thread.join(15)
        own.start()
        stored = {item["metadata"]["name"] for item in own.request("GET", MAPS)["items"]}
        missing = {name for names in acknowledged for name in names} - stored
        assert not missing
    assert sum(map(len, acknowledged)) >= 300


def test_revisions_go_on_after_kill_9(own: ApiServer) -> None:
    made = own.request("POST", MAPS, {"metadata": {"name": "a"}})
    own.request("DELETE", f"{MAPS}/a")
    before = int(own.request("GET", MAPS)["metadata"]["resourceVersion"])
    own.kill()
    own.start()
    assert int(own.request("GET", MAPS)["metadata"]["resourceVersion"]) >= before
    events = list(_watch(own, f"resourceVersion={made['metadata']['resourceVersion']}", 1))
    assert (events[0]["type"], events[0]["object"]["code"]) == ("ERROR", 410)


def test_sigterm_ends_it_cleanly_with_open_watches(own: ApiServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", own.port, timeout=10)
    connection.request("GET", f"{MAPS}?watch=true")
    response = connection.getresponse()
    assert own.kill(signal.SIGTERM) == 0
    assert response.read() is not None


def _watch(server: ApiServer, query: str, count: int, accept: str = "application/json") -> Iterator[Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", f"{MAPS}?watch=true&{query}", headers={"Accept": accept})
    response = connection.getresponse()
    for _ in range(count):
        yield json.loads(response.readline())
    connection.close()


def test_watch_sends_state_then_a_bookmark_then_changes(server: ApiServer) -> None:
    server.request("POST", MAPS, {"metadata": {"name": "w1", "labels": {"watch": "me"}}})
    query = "labelSelector=watch%3Dme&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    events = _watch(server, query, 4)
    first = next(events)
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "w1")
    mark = next(events)
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    server.request("POST", MAPS, {"metadata": {"name": "w2"}})
    change = {"metadata": {"labels": {"watch": "no"}}}
    server.request("PATCH", f"{MAPS}/w1", change, content_type="application/merge-patch+json")
    assert next(events)["type"] == "DELETED"


def test_tables_and_partial_metadata(server: ApiServer) -> None:
    server.request("POST", MAPS, {"metadata": {"name": "t1"}, "data": {"a": "b"}})
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    table = server.request("GET", f"{MAPS}/t1", Accept=accept)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["cells"][:2] == ["t1", 1]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    listed = server.request("GET", MAPS, Accept=accept)
    assert listed["kind"] == "PartialObjectMetadataList"
    assert "data" not in listed["items"][0]


def test_discovery_and_openapi(server: ApiServer) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    found = server.request("GET", "/apis", Accept=accept)
    groups = {item["metadata"]["name"] for item in found["items"]}
    assert {"apps", "policy", "rbac.authorization.k8s.io"} <= groups
    plain = server.request("GET", "/apis")
    assert {group["name"] for group in plain["groups"]} == groups
    pods = next(r for r in server.request("GET", "/api/v1")["resources"] if r["name"] == "pods")
    assert pods["shortNames"] == ["po"]
    index = server.request("GET", "/openapi/v3")
    document = server.request("GET", index["paths"]["api/v1"]["serverRelativeURL"])
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert {"dryRun", "fieldValidation"} <= {parameter["name"] for parameter in patch["parameters"]}


@pytest.mark.parametrize(
    ("method", "path", "code", "reason"),
    [
        ("GET", "/api/v1/namespaces/default/configmaps/none", 404, "NotFound"),
        ("GET", "/api/v1/nothings", 404, "NotFound"),
        ("POST", "/api/v1/namespaces/default/configmaps/x", 405, "MethodNotAllowed"),
        ("GET", "/api/v1/configmaps?labelSelector=a+b", 400, "BadRequest"),
        ("GET", "/api/v1/configmaps?continue=zzz", 400, "BadRequest"),
    ],
)
def test_failures_are_status_objects(server: ApiServer, method: str, path: str, code: int, reason: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.request(method, path, {} if method == "POST" else None)
    status = json.load(refused.value)
    assert (refused.value.code, status["kind"], status["code"], status["reason"]) == (code, "Status", code, reason)


def test_metrics_count_writes(server: ApiServer) -> None:
    server.request("POST", MAPS, {"metadata": {"name": "counted"}})
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    assert 'virt_local_object_writes_total{resource="configmaps",operation="create"}' in text
    assert 'apiserver_request_total{verb="create",group="",version="v1",resource="configmaps"' in text
