"""Selectors, paths of requests, JSON paths, durations and accepted forms."""

from __future__ import annotations

from typing import Any

import pytest

from virt_local.apiserver import jsonpath
from virt_local.apiserver.builtins.table import BUILTIN_KINDS
from virt_local.apiserver.catalog import version_order
from virt_local.apiserver.errors import ApiError
from virt_local.apiserver.humanize import short_duration
from virt_local.apiserver.output.negotiate import Form, negotiate
from virt_local.apiserver.request import parse_target
from virt_local.apiserver.selectors import parse_fields, parse_labels, selects
from virt_local.apiserver.storage.record import Record

from .conftest import Client, pod

PODS = next(kind for kind in BUILTIN_KINDS if kind.plural == "pods")


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a in (b, c),d", {"a": "c", "d": "1"}, True),
        ("a notin (b,c)", {"a": "b"}, False),
        ("kubevirt.io/nodeName=n1", {"kubevirt.io/nodeName": "n1"}, True),
        ("a>5", {"a": "6"}, True),
        ("a=", {"a": ""}, True),
    ],
)
def test_label_selectors(text: str, labels: dict[str, str], expected: bool) -> None:
    assert parse_labels(text)(labels) is expected


@pytest.mark.parametrize("text", ["a b", "a in b", "=b", "a=(b)"])
def test_bad_label_selectors(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_labels(text)
    assert refused.value.code == 400


def test_label_selector_objects() -> None:
    selector = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]}
    assert selects(selector, {"a": "b", "c": "x"})
    assert not selects(selector, {"a": "b"})
    assert selects({}, {})
    assert selects(None, {"a": "b"})


def _record(**fields: str) -> Record:
    return Record(resource="pods", namespace="n", name="p", uid="", revision=1, labels={}, fields=fields, raw=b"{}")


def test_field_selectors() -> None:
    running = _record(**{"status.phase": "Running", "spec.nodeName": "n1"})
    assert parse_fields("status.phase=Running,spec.nodeName==n1,metadata.name=p", PODS)(running)
    assert parse_fields("status.phase!=Failed", PODS)(running)
    assert not parse_fields("metadata.namespace!=n", PODS)(running)
    with pytest.raises(ApiError) as refused:
        parse_fields("spec.hostname=x", PODS)
    assert "field label not supported" in refused.value.message


def test_lists_by_field(run: Any) -> None:
    async def scenario(client: Client) -> None:
        path = "/api/v1/namespaces/default/pods"
        for name in ("a", "b"):
            await client.send("POST", path, pod(name))
        await client.send("POST", f"{path}/a/binding", {"target": {"name": "node1"}})
        listed = await client.send("GET", "/api/v1/pods", fieldSelector="spec.nodeName=node1")
        assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]
        listed = await client.send("GET", path, fieldSelector="metadata.name=b")
        assert [item["metadata"]["name"] for item in listed["items"]] == ["b"]

    run(scenario)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/pods", ("list", "", "pods", "", "", "")),
        ("GET", "/api/v1/namespaces/n/pods/p/log", ("get", "", "pods", "n", "p", "log")),
        ("GET", "/api/v1/namespaces/n", ("get", "", "namespaces", "n", "n", "")),
        ("PUT", "/api/v1/namespaces/n/finalize", ("update", "", "namespaces", "n", "n", "finalize")),
        ("DELETE", "/apis/g.io/v1/namespaces/n/things", ("deletecollection", "g.io", "things", "n", "", "")),
        ("POST", "/apis/g.io/v1/namespaces/n/things", ("create", "g.io", "things", "n", "", "")),
        ("GET", "/apis/g.io/v1", ("get", "", "", "", "", "")),
        ("GET", "/version", ("get", "", "", "", "", "")),
    ],
)
def test_paths(method: str, path: str, expected: tuple[str, ...]) -> None:
    target = parse_target(method, path, {})
    found = (target.verb, target.group, target.resource, target.namespace, target.name, target.subresource)
    assert found == expected


def test_a_right_is_for_the_first_part_of_a_longer_path() -> None:
    """As Kubernetes has it: virt-api itself asks for the rest."""
    target = parse_target("GET", "/apis/g.io/v1/namespaces/n/things/t/portforward/22/tcp", {})
    assert (target.right, target.subresource) == ("portforward", "portforward/22/tcp")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.a", [1]),
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        ('.status.conditions[?(@.type=="None")].status', []),
        (".status.list[0]", ["x"]),
        (".status.list[*]", ["x", "y"]),
        (".status.list[-1]", ["y"]),
        ("{.spec.a}", [1]),
        (r".metadata.labels.example\.com/name", ["v"]),
        (".metadata.labels['example.com/name']", ["v"]),
        (".status.interfaces[0].ipAddress", ["10.0.0.1"]),
    ],
)
def test_json_paths(path: str, expected: list[Any]) -> None:
    document = {
        "metadata": {"labels": {"example.com/name": "v"}},
        "spec": {"a": 1},
        "status": {
            "conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}],
            "list": ["x", "y"],
            "interfaces": [{"ipAddress": "10.0.0.1"}],
        },
    }
    assert jsonpath.compile_path(path)(document) == expected


def test_bad_json_path() -> None:
    with pytest.raises(jsonpath.BadPath):
        jsonpath.compile_path(".a[?(")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (192, "3m12s"), (900, "15m"), (18061, "5h1m"), (90000, "25h"), (86400 * 12, "12d")],
)
def test_durations(seconds: int, text: str) -> None:
    assert short_duration(seconds) == text


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", Form.PLAIN),
        ("application/json", Form.PLAIN),
        ("application/vnd.kubernetes.protobuf, application/json", Form.PLAIN),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Form.TABLE),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Form.PARTIAL),
        ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json", Form.PLAIN),
    ],
)
def test_accepted_forms(accept: str, form: Form) -> None:
    assert negotiate(accept).form is form


def test_protobuf_is_for_clients_that_take_nothing_else() -> None:
    assert negotiate("application/vnd.kubernetes.protobuf").media == "application/vnd.kubernetes.protobuf"
    assert negotiate("application/vnd.kubernetes.protobuf,application/json").media == "application/json"
    with pytest.raises(ApiError) as refused:
        negotiate("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io")
    assert refused.value.code == 406


def test_versions_are_ordered_by_maturity() -> None:
    versions = ["v1alpha1", "v2", "v1beta1", "foo", "v1", "v1beta2", "v10"]
    ordered = sorted(versions, key=version_order, reverse=True)
    assert ordered == ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo"]
