"""Reviews, tokens, admission and the server's own writes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from virt_local.apiserver import errors
from virt_local.apiserver.errors import ApiError
from virt_local.apiserver.hooks import AdmissionRequest, Attributes, Decision, Object, Reviewed, User
from virt_local.apiserver.tasks import expire_events

from .conftest import Client, config_map

MAPS = "/api/v1/namespaces/default/configmaps"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"


class OnlyReaders:
    """Allows `get` to the group readers; knows one token."""

    async def authenticate(self, request: Any) -> User | None:
        return None

    async def review_token(self, token: str, audiences: Sequence[str]) -> Reviewed:
        ann = User("ann", ("readers",))
        return Reviewed(ann) if token == "good" else Reviewed(None, error="not a token of ours")

    async def authorize(self, user: User, attributes: Attributes) -> Decision:
        allowed = "readers" in user.groups and attributes.verb == "get" and attributes.resource == "pods"
        return Decision(allowed, "" if allowed else "only readers")

    async def rules(self, user: User, namespace: str) -> tuple[list[Object], list[Object]]:
        return [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}], []


def test_access_reviews_ask_the_authorizer(run: Any) -> None:
    async def scenario(client: Client) -> None:
        client.server.hooks.authorizer = OnlyReaders()
        about = {"verb": "get", "resource": "pods", "namespace": "default"}
        body: Any = {"spec": {"user": "ann", "groups": ["readers"], "resourceAttributes": about}}
        answer = await client.send("POST", f"{AUTHORIZATION}/subjectaccessreviews", body)
        assert answer["status"] == {"allowed": True}
        body["spec"]["groups"] = []
        answer = await client.send("POST", f"{AUTHORIZATION}/subjectaccessreviews", body)
        assert answer["status"] == {"allowed": False, "reason": "only readers"}
        body = {"spec": {"resourceAttributes": about}}
        answer = await client.send("POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", body)
        assert answer["status"]["allowed"] is False
        with pytest.raises(ApiError) as refused:
            await client.send("POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {}})
        assert refused.value.code == 422

    run(scenario)


def test_token_reviews_ask_the_authenticator(run: Any) -> None:
    async def scenario(client: Client) -> None:
        client.server.hooks.authenticator = OnlyReaders()
        path = f"{AUTHENTICATION}/tokenreviews"
        good = await client.send("POST", path, {"spec": {"token": "good"}})
        assert good["status"]["authenticated"] is True
        assert good["status"]["user"] == {"username": "ann", "groups": ["readers"]}
        bad = await client.send("POST", path, {"spec": {"token": "bad"}})
        assert bad["status"] == {"user": {}, "error": "not a token of ours"}

    run(scenario)


class Gate:
    """Marks every new object, and refuses what says so."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    async def mutate(self, request: AdmissionRequest) -> None:
        if request.operation == "CREATE" and request.object is not None:
            request.object["data"] = {"marked": "yes", **(request.object.get("data") or {})}

    async def validate(self, request: AdmissionRequest) -> None:
        self.seen.append((request.operation, request.resource, request.name))
        if request.object is not None and (request.object.get("data") or {}).get("refuse"):
            raise errors.forbidden(request.resource, request.group, request.name, "the gate is closed")


def test_admission_stands_around_every_write(run: Any) -> None:
    async def scenario(client: Client) -> None:
        gate = client.server.hooks.admission = Gate()
        made = await client.send("POST", MAPS, config_map("a"))
        assert made["data"] == {"marked": "yes"}
        with pytest.raises(ApiError) as refused:
            await client.send("PUT", f"{MAPS}/a", config_map("a", refuse="me"))
        assert refused.value.code == 403
        with pytest.raises(ApiError):
            await client.send("POST", MAPS, config_map("b", refuse="me"))
        assert client.server.store.get("configmaps", "default", "b") is None
        await client.send("DELETE", f"{MAPS}/a")
        assert [operation for operation, _, _ in gate.seen] == ["CREATE", "UPDATE", "CREATE", "DELETE"]

    run(scenario)


def test_the_server_writes_its_own_without_asking(run: Any) -> None:
    async def scenario(client: Client) -> None:
        gate = client.server.hooks.admission = Gate()
        first = await client.server.ensure(config_map("own") | {"metadata": {"name": "own", "namespace": "default"}})
        again = await client.server.ensure(config_map("own") | {"metadata": {"name": "own", "namespace": "default"}})
        assert first.revision == again.revision
        assert gate.seen == []

    run(scenario)


def test_old_events_are_forgotten(run: Any) -> None:
    async def scenario(client: Client) -> None:
        path = "/api/v1/namespaces/default/events"
        now = datetime.now(UTC)
        for name, age in (("old", timedelta(0)), ("young", timedelta(minutes=30))):
            seen = (now + age).strftime("%Y-%m-%dT%H:%M:%SZ")
            await client.send("POST", path, {"metadata": {"name": name}, "lastTimestamp": seen, "reason": "R"})
        assert await expire_events(client.server, now + timedelta(minutes=30)) == 0
        assert await expire_events(client.server, now + timedelta(minutes=61)) == 1
        left = [item["metadata"]["name"] for item in (await client.send("GET", path))["items"]]
        assert left == ["young"]

    run(scenario)
