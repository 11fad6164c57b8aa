"""Admission webhooks: whom they concern, what they are sent, what their answers do."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from framework.stored import FakeSource, admission, meta

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import AdmissionRequest
from virt_local.apiserver.patches.json_patch import apply_json_patch
from virt_local.apiserver.security.webhooks.client import CallFailed
from virt_local.apiserver.security.webhooks.conditions import check_conditions
from virt_local.apiserver.security.webhooks.dispatch import Webhooks
from virt_local.apiserver.security.webhooks.match import Webhook, matching_version

GROUP = "kubevirt.io"
MUTATING = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
VALIDATING = "validatingwebhookconfigurations.admissionregistration.k8s.io"

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def entry(name: str = "w.example", **more: Any) -> dict[str, Any]:
    rule = {"operations": ["CREATE"], "apiGroups": [GROUP], "apiVersions": ["v1"], "resources": ["vmis"], "scope": "*"}
    return {"name": name, "rules": [rule], "clientConfig": {}, "sideEffects": "None", **more}


def write(**more: Any) -> AdmissionRequest:
    obj = {"apiVersion": f"{GROUP}/v1", "kind": "VMI", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {}}
    made: AdmissionRequest = admission(**{"resource": "vmis", "group": GROUP, "kind": "VMI", "obj": obj, **more})
    return made


def matches(webhook: dict[str, Any], request: AdmissionRequest, labels: dict[str, str] | None = None) -> bool:
    return bool(matching_version(Webhook("c", webhook, True), request, labels if labels is not None else {}))


class FakeClient:
    """Answers by webhook name; records what was asked."""

    def __init__(self, **answers: Answer | Exception) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []

    async def call(self, webhook: Webhook, body: bytes) -> bytes:
        request = json.loads(body)["request"]
        self.asked.append((webhook.name, request))
        answer = self.answers[webhook.name.split(".")[0]]
        if isinstance(answer, Exception):
            raise answer
        response = {"uid": request["uid"], "allowed": True, **answer(request)}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return json.dumps(review).encode()


def patch(*operations: dict[str, Any]) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(operations).encode()).decode()}


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def webhooks(client: FakeClient, *mutating: dict[str, Any], validating: tuple[dict[str, Any], ...] = ()) -> Webhooks:
    source = FakeSource()
    source.put("namespaces", {"metadata": meta("default", labels={"team": "x"})})
    source.put(MUTATING, {"metadata": meta("m"), "webhooks": list(mutating)})
    source.put(VALIDATING, {"metadata": meta("v"), "webhooks": list(validating)})
    return Webhooks(source, client, apply_json_patch)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "request_changes", "expected"),
    [
        ({}, {}, True),
        ({}, {"operation": "DELETE"}, False),
        ({}, {"group": "other"}, False),
        ({}, {"subresource": "status"}, False),
        ({}, {"version": "v1alpha3"}, True),
        ({"matchPolicy": "Exact"}, {"version": "v1alpha3"}, False),
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, {}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, {}, False),
        ({"objectSelector": {"matchLabels": {"a": "b"}}}, {}, True),
        ({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}, {}, False),
    ],
)
def test_matching(changes: dict[str, Any], request_changes: dict[str, Any], expected: bool) -> None:
    assert matches(entry(**changes), write(**request_changes), {"team": "x"}) is expected


@pytest.mark.parametrize(
    ("pattern", "subresource", "expected"),
    [
        ("vmis", "", True),
        ("vmis", "status", False),
        ("vmis/*", "", True),
        ("vmis/*", "status", True),
        ("*/status", "status", True),
        ("*", "", True),
        ("*", "status", False),
        ("*/*", "status", True),
        ("pods", "", False),
    ],
)
def test_resource_patterns(pattern: str, subresource: str, expected: bool) -> None:
    rule = {**entry()["rules"][0], "resources": [pattern]}
    assert matches(entry(rules=[rule]), write(subresource=subresource)) is expected


def test_scope() -> None:
    namespaced = {**entry()["rules"][0], "scope": "Namespaced"}
    assert matches(entry(rules=[namespaced]), write())
    assert not matches(entry(rules=[namespaced]), write(namespace=""))
    cluster = {**entry()["rules"][0], "scope": "Cluster"}
    assert matches(entry(rules=[cluster]), write(namespace=""))


def test_webhook_configurations_are_exempt() -> None:
    """Else a broken webhook could not be removed any more."""
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
    exempt = write(group="admissionregistration.k8s.io", resource="validatingwebhookconfigurations")
    assert not matches(entry(rules=[rule]), exempt)


def test_patches_apply_in_order() -> None:
    client = FakeClient(
        a=lambda _: patch(add("/spec/x", 1)), b=lambda r: patch(add("/spec/y", r["object"]["spec"]["x"] + 1))
    )
    request = write()
    asyncio.run(webhooks(client, entry("a.e"), entry("b.e")).mutate(request))
    assert request.object is not None
    assert request.object["spec"] == {"x": 1, "y": 2}


def test_reinvocation_when_a_later_webhook_changed_something() -> None:
    client = FakeClient(a=lambda _: {}, b=lambda _: patch(add("/spec/y", 1)))
    asyncio.run(webhooks(client, entry("a.e", reinvocationPolicy="IfNeeded"), entry("b.e")).mutate(write()))
    assert [name for name, _ in client.asked] == ["a.e", "b.e", "a.e"]
    assert client.asked[-1][1]["object"]["spec"] == {"y": 1}


def test_the_review_carries_both_versions() -> None:
    """A webhook for v1 sees a v1alpha3 object as v1; the object keeps its own version."""
    client = FakeClient(a=lambda r: patch(add("/spec/seen", r["object"]["apiVersion"])))
    request = write(version="v1alpha3", operation="CREATE")
    assert request.object is not None
    request.object["apiVersion"] = f"{GROUP}/v1alpha3"
    asyncio.run(webhooks(client, entry("a.e")).mutate(request))
    (_, asked) = client.asked[0]
    assert asked["kind"]["version"] == "v1"
    assert asked["requestKind"]["version"] == "v1alpha3"
    assert request.object["apiVersion"] == f"{GROUP}/v1alpha3"
    assert request.object["spec"]["seen"] == f"{GROUP}/v1"
    assert asked["userInfo"]["username"] == "alice"
    assert "oldObject" in asked


def test_a_denial_keeps_code_reason_and_causes() -> None:
    cause = {"field": "spec.domain", "message": "bad", "reason": "FieldValueInvalid"}
    status = {"code": 422, "reason": "Invalid", "message": "no", "details": {"causes": [cause], "name": "x"}}
    client = FakeClient(a=lambda _: {"allowed": False, "status": status, "warnings": ["careful"]})
    request = write()
    with pytest.raises(errors.ApiError) as caught:
        asyncio.run(webhooks(client, validating=(entry("a.e"),)).validate(request))
    answer = caught.value.to_status()
    assert answer["message"] == 'admission webhook "a.e" denied the request: no'
    assert (answer["code"], answer["reason"]) == (422, "Invalid")
    assert answer["details"]["causes"] == [cause]
    assert request.warnings == ["careful"]


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        ({}, "denied the request without explanation", 400),
        ({"reason": "Because"}, "denied the request: Because", 400),
        ({"code": 200, "message": "m"}, "denied the request: m", 400),
        ({"code": 429, "message": "m"}, "denied the request: m", 429),
    ],
)
def test_denials_without_much_to_say(status: dict[str, Any], message: str, code: int) -> None:
    client = FakeClient(a=lambda _: {"allowed": False, "status": status})
    with pytest.raises(errors.ApiError) as caught:
        asyncio.run(webhooks(client, validating=(entry("a.e"),)).validate(write()))
    assert caught.value.message == f'admission webhook "a.e" {message}'
    assert caught.value.code == code


@pytest.mark.parametrize(
    "broken",
    [
        CallFailed("connection refused"),
        lambda _: {"uid": "another"},
        lambda _: {"patchType": "Merge", "patch": "e30="},
        lambda _: {"patchType": "JSONPatch", "patch": "!"},
    ],
)
def test_a_failing_webhook_fails_the_write_unless_it_may_be_ignored(broken: Any) -> None:
    client = FakeClient(a=broken)
    with pytest.raises(errors.ApiError) as caught:
        asyncio.run(webhooks(client, entry("a.e", failurePolicy="Fail")).mutate(write()))
    assert caught.value.code == 500
    assert 'failed calling webhook "a.e": failed to call webhook: ' in caught.value.message
    asyncio.run(webhooks(client, entry("a.e", failurePolicy="Ignore")).mutate(write()))


def test_dry_run_asks_only_webhooks_without_side_effects() -> None:
    client = FakeClient(a=lambda _: {})
    asyncio.run(webhooks(client, entry("a.e")).mutate(write(dry_run=True)))
    assert client.asked[0][1]["dryRun"] is True
    with pytest.raises(errors.ApiError, match="does not support dry run"):
        asyncio.run(webhooks(client, entry("a.e", sideEffects="Some")).mutate(write(dry_run=True)))


@pytest.mark.parametrize(
    ("expression", "asked"),
    [
        ("object.spec.size > 5", 0),
        ("object.spec.size > 5 || request.operation == 'CREATE'", 1),
        ("request.userInfo.username == 'nobody'", 0),
        ("has(object.metadata.labels) && object.metadata.labels.a == 'b'", 1),
    ],
)
def test_match_conditions_decide_whether_a_webhook_is_asked(expression: str, asked: int) -> None:
    client = FakeClient(w=lambda _: {})
    hook = entry(matchConditions=[{"name": "x", "expression": expression}])
    request = write(obj={"metadata": {"name": "a", "labels": {"a": "b"}}, "spec": {"size": 1}})
    asyncio.run(webhooks(client, validating=(hook,)).validate(request))
    assert len(client.asked) == asked


def test_a_match_condition_that_cannot_be_evaluated_follows_the_failure_policy() -> None:
    client = FakeClient(w=lambda _: {})
    broken = {"matchConditions": [{"name": "x", "expression": "object.spec.nowhere > 5"}]}
    request = write(obj={"metadata": {"name": "a"}, "spec": {}})
    with pytest.raises(errors.ApiError) as caught:
        asyncio.run(webhooks(client, validating=(entry(**broken),)).validate(request))
    assert caught.value.code == 403
    assert "no such key: nowhere" in caught.value.message
    asyncio.run(webhooks(client, validating=(entry(failurePolicy="Ignore", **broken),)).validate(request))
    assert not client.asked


def test_expressions_are_checked_when_they_are_written() -> None:
    bad = [{"name": "x", "expression": text} for text in ("1 +", "'text'", "quantity('1Gi')", "authorizer.path('/')")]
    assert [cause.field for cause in check_conditions(bad, "c")] == [f"c[{index}].expression" for index in range(4)]
    assert not check_conditions([{"name": "x", "expression": "request.name.startsWith('a')"}], "c")
