"""Webhooks over real TLS, RBAC and tokens on a running API server, and what goes with its owner."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from .serving import Api, api_server, service, within

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "scope": "*"}


def webhook_server() -> web.Application:
    async def answer(request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        response: dict[str, Any] = {"uid": asked["uid"], "allowed": True, "warnings": ['say "hi"']}
        if request.path == "/mutate":
            patch = [{"op": "add", "path": "/data", "value": {"by": asked["userInfo"]["username"]}}]
            response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
        elif asked["name"] == "bad":
            cause = {"field": "data", "message": "is bad", "reason": "FieldValueInvalid"}
            status = {"code": 422, "reason": "Invalid", "message": "bad data", "details": {"causes": [cause]}}
            response |= {"allowed": False, "status": status}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return web.json_response(review)

    app = web.Application()
    app.router.add_post("/mutate", answer)
    app.router.add_post("/validate", answer)
    return app


async def register(api: Api, bundle: str, reference: dict[str, str], **more: Any) -> None:
    for kind, path in (("Mutating", "/mutate"), ("Validating", "/validate")):
        entry = {
            "name": f"{kind.lower()}.example.org",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "rules": [RULE],
            "clientConfig": {"caBundle": bundle, "service": {**reference, "path": path}},
            "timeoutSeconds": 2,
            **more,
        }
        base = "/apis/admissionregistration.k8s.io/v1"
        obj = {"metadata": {"name": "w"}, "webhooks": [entry]}
        await api.create(f"{base}/{kind.lower()}webhookconfigurations", obj)


def test_webhooks_change_warn_and_refuse(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with api_server(tmp_path) as api, service(api, "hook", webhook_server()) as (bundle, reference):
            await register(api, bundle, reference)
            status, made, headers = await api.call("POST", CONFIGMAPS, {"metadata": {"name": "good"}})
            assert status == 201
            assert made["data"] == {"by": "kubernetes-admin"}
            assert headers["Warning"] == '299 - "say \\"hi\\""'
            status, refused, _ = await api.call("POST", CONFIGMAPS, {"metadata": {"name": "bad"}})
            assert status == 422
            assert refused["message"] == 'admission webhook "validating.example.org" denied the request: bad data'
            assert refused["details"]["causes"][0]["field"] == "data"
            status, _, _ = await api.call("GET", f"{CONFIGMAPS}/bad")
            assert status == 404

    asyncio.run(scenario())


def aggregated_webhook(seen: list[dict[str, Any]]) -> web.Application:
    """Behind an APIService; keeps what it learnt about who asks."""

    async def resources(_: web.Request) -> web.Response:
        return web.json_response({"kind": "APIResourceList", "groupVersion": "hooks.example.org/v1", "resources": []})

    async def answer(request: web.Request) -> web.Response:
        tls = request.transport.get_extra_info("ssl_object") if request.transport else None
        peer = dict(part[0] for part in tls.getpeercert()["subject"]) if tls and tls.getpeercert() else {}
        said = {key: request.headers.getall(key, []) for key in ("X-Remote-User", "X-Remote-Group", "Authorization")}
        seen.append({"peer": peer, **said})
        response = {"uid": (await request.json())["request"]["uid"], "allowed": True}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        return web.json_response(review)

    app = web.Application()
    app.router.add_get("/apis/hooks.example.org/v1", resources)
    app.router.add_post("/apis/hooks.example.org/v1/reviews/x", answer)
    return app


def test_a_webhook_behind_the_aggregated_api_knows_the_api_server(tmp_path: Path) -> None:
    """As the real one does it with the Service default/kubernetes: no caBundle, the front-proxy certificate instead."""
    own = {"name": "kubernetes", "namespace": "default", "port": 443, "path": "/apis/hooks.example.org/v1/reviews/x"}

    async def scenario() -> None:
        seen: list[dict[str, Any]] = []
        entry = {
            "name": "own.example.org",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "rules": [RULE],
            "clientConfig": {"service": own},
        }
        hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        async with api_server(tmp_path) as api, service(api, "agg", aggregated_webhook(seen)) as (bundle, reference):
            await api.create(hooks, {"metadata": {"name": "w"}, "webhooks": [entry]})
            status, failed, _ = await api.call("POST", CONFIGMAPS, {"metadata": {"name": "early"}})
            assert (status, seen) == (500, [])
            assert "the server could not find the requested resource" in failed["message"]
            spec = {"group": "hooks.example.org", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
            spec |= {"caBundle": bundle, "service": {**reference, "port": 443}}
            services = "/apis/apiregistration.k8s.io/v1/apiservices"
            await api.create(services, {"metadata": {"name": "v1.hooks.example.org"}, "spec": spec})
            status, _, _ = await api.call("POST", CONFIGMAPS, {"metadata": {"name": "good"}})
            assert status == 201
            groups = ["system:authenticated", "system:masters"]
            peer = {"commonName": "front-proxy-client"}
            assert seen == [
                {"peer": peer, "X-Remote-User": ["system:apiserver"], "X-Remote-Group": groups, "Authorization": []}
            ]

    asyncio.run(scenario())


def test_a_certificate_of_another_authority_is_not_believed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with api_server(tmp_path) as api, service(api, "hook", webhook_server()) as (_, reference):
            wrong = base64.b64encode(api.material.front_proxy_ca.pem).decode()
            await register(api, wrong, reference)
            status, failed, _ = await api.call("POST", CONFIGMAPS, {"metadata": {"name": "x"}})
            assert status == 500
            assert 'failed calling webhook "mutating.example.org"' in failed["message"]
            assert "https://hook.default.svc:443/mutate?timeout=2s" in failed["message"]

    asyncio.run(scenario())


def test_an_absent_webhook_server_refuses_or_is_ignored(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with api_server(tmp_path) as api:
            async with service(api, "hook", webhook_server()) as (bundle, reference):
                await register(api, bundle, reference, failurePolicy="Ignore")
            status, made, _ = await api.call("POST", CONFIGMAPS, {"metadata": {"name": "x"}})
            assert status == 201
            assert "data" not in made

    asyncio.run(scenario())


def test_a_token_opens_what_its_account_may_and_nothing_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with api_server(tmp_path) as api:
            base = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
            await api.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "bot"}})
            rule = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}
            await api.create(f"{base}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
            ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
            subject = {"kind": "ServiceAccount", "name": "bot", "namespace": "default"}
            await api.create(f"{base}/rolebindings", {"metadata": {"name": "b"}, "roleRef": ref, "subjects": [subject]})
            account = "/api/v1/namespaces/default/serviceaccounts/bot"
            issued = await api.create(f"{account}/token", {"spec": {"expirationSeconds": 600}})
            bearer = {"Authorization": f"Bearer {issued['status']['token']}"}
            status, _, _ = await api.call("GET", CONFIGMAPS, user="", headers=bearer)
            assert status == 200
            status, refused, _ = await api.call("GET", "/api/v1/secrets", user="", headers=bearer)
            assert status == 403
            assert 'User "system:serviceaccount:default:bot" cannot list resource "secrets"' in refused["message"]
            review = {"spec": {"token": issued["status"]["token"]}}
            path = "/apis/authentication.k8s.io/v1/tokenreviews"
            status, answer, _ = await api.call("POST", path, review)
            assert answer["status"]["authenticated"] is True
            assert answer["status"]["user"]["username"] == "system:serviceaccount:default:bot"
            await api.call("DELETE", account)
            status, _, _ = await api.call("GET", CONFIGMAPS, user="", headers=bearer)
            assert status == 401

    asyncio.run(scenario())


def test_a_node_cannot_ask_for_the_token_of_any_account(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with api_server(tmp_path) as api:
            path = "/api/v1/namespaces/kube-system/serviceaccounts/default/token"
            status, refused, _ = await api.call("POST", path, {"spec": {}}, user="node-node1")
            assert status == 403, refused
            assert "bound to a pod that runs on it" in refused["message"]
            status, _, _ = await api.call("GET", "/api/v1/secrets", user="node-node1")
            assert status == 403

    asyncio.run(scenario())


def test_dependents_and_namespaces_go_by_themselves(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with api_server(tmp_path) as api:
            owner = await api.create(CONFIGMAPS, {"metadata": {"name": "owner"}})
            uid = owner["metadata"]["uid"]
            ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
            await api.create(CONFIGMAPS, {"metadata": {"name": "child", "ownerReferences": [ref]}})
            await api.call("DELETE", f"{CONFIGMAPS}/owner")

            async def child_gone() -> bool:
                return (await api.call("GET", f"{CONFIGMAPS}/child"))[0] == 404

            await within(5, child_gone)
            await api.create("/api/v1/namespaces", {"metadata": {"name": "temp"}})
            await api.create("/api/v1/namespaces/temp/configmaps", {"metadata": {"name": "inside"}})
            await api.call("DELETE", "/api/v1/namespaces/temp")

            async def namespace_gone() -> bool:
                return (await api.call("GET", "/api/v1/namespaces/temp"))[0] == 404

            await within(5, namespace_gone)
            _, left, _ = await api.call("GET", "/api/v1/configmaps")
            assert "temp" not in {item["metadata"]["namespace"] for item in left["items"]}

    asyncio.run(scenario())
