"""Who may do what: refusals, reviews, tokens, impersonation, escalation."""

from __future__ import annotations

import time
from typing import Any

from contract.cases.lists import gadget
from contract.table import case
from contract.talk import GADGETS, GROUP, MAPS, PODS, Talk

RBAC = "/apis/rbac.authorization.k8s.io/v1"
AUTHZ = "/apis/authorization.k8s.io/v1"
AUTHN = "/apis/authentication.k8s.io/v1"
USER = "contract-user"


@case()
def refusals(t: Talk) -> None:
    t.get(MAPS, user=USER)
    t.get(f"{MAPS}/a", user=USER)
    t.create(MAPS, {"metadata": {"name": "a"}}, user=USER)
    t.patch(f"{MAPS}/a", {}, user=USER)
    t.delete(f"{MAPS}/a", user=USER)
    t.delete(MAPS, user=USER)
    t.get("/api/v1/configmaps", user=USER)
    t.get("/api/v1/nodes", user=USER)
    t.get("/api/v1/nodes/n", user=USER)
    t.get(f"{PODS}/p/log", user=USER)
    t.create(f"{PODS}/p/eviction", {}, user=USER)
    t.get(f"{GADGETS}/a/scale", user=USER)
    t.get(f"{GADGETS}?watch=1", user=USER)
    t.get("/apis/nowhere.virtpod.test/v1/things", user=USER)
    t.get("/api/v1/namespaces/{ns}/nothings", user=USER)
    t.get("/metrics", user=USER)
    t.get("/nowhere", user=USER)
    t.get("/api/v1/namespaces/{ns}", user=USER)
    t.get("/api/v1/namespaces", user=USER)


@case()
def what_everybody_may(t: Talk) -> None:
    t.get("/api", user=USER, pick=lambda body: body["kind"])
    t.get("/version", user=USER, pick=lambda body: body["major"])
    t.get("/healthz", user=USER)
    t.get("/openapi/v3", user=USER, pick=lambda body: "api/v1" in body["paths"])
    t.create(f"{AUTHN}/selfsubjectreviews", {}, user=USER)


@case()
def without_credentials(t: Talk) -> None:
    t.get(MAPS, anonymous=True)
    t.get("/", anonymous=True)
    t.get("/apis", anonymous=True)
    t.get("/healthz", anonymous=True)
    t.get("/version", anonymous=True, pick=lambda body: body["major"])
    t.get("/metrics", anonymous=True)


@case()
def with_bad_credentials(t: Talk) -> None:
    for header in ("Bearer nonsense", "Bearer a.b.c", "Bearer ", "Basic YTpi"):
        t.get(MAPS, anonymous=True, headers={"Authorization": header})
    t.get("/healthz", anonymous=True, headers={"Authorization": "Bearer nonsense"})


@case()
def granted(t: Talk) -> None:
    rules = [{"apiGroups": [GROUP], "resources": ["gadgets"], "verbs": ["get", "list"], "resourceNames": ["a"]}]
    t.create(f"{RBAC}/namespaces/{{ns}}/roles", {"metadata": {"name": "r"}, "rules": rules})
    binding = {
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": USER}, {"kind": "ServiceAccount", "name": "default", "namespace": t.ns}],
    }
    t.create(f"{RBAC}/namespaces/{{ns}}/rolebindings", binding)
    t.given(GADGETS, gadget("a"))
    _allowed(t, f"{GADGETS}/a", USER)
    t.get(f"{GADGETS}/a", user=USER, pick=lambda body: body["kind"])
    t.get(f"{GADGETS}/b", user=USER)
    t.get(GADGETS, user=USER)
    t.get(f"{GADGETS}?fieldSelector=metadata.name%3Da", user=USER, pick=lambda body: body["kind"])
    t.get(f"{GADGETS}/a/status", user=USER)
    t.get(f"{GADGETS}/a", user=f"system:serviceaccount:{t.ns}:default", pick=lambda body: body["kind"])


def _allowed(t: Talk, path: str, user: str) -> None:
    """A real API server learns of a binding by a watch."""
    deadline = time.monotonic() + 20
    while t.send("GET", path, user=user).status == 403:
        assert time.monotonic() < deadline, f"{user} did not get the right"
        time.sleep(0.02)


def _access(t: Talk, kind: str, **spec: Any) -> None:
    t.create(f"{AUTHZ}/{kind}", {"spec": spec})


@case()
def own_access(t: Talk) -> None:
    about = {"namespace": t.ns, "verb": "get", "resource": "configmaps"}
    t.create(f"{AUTHZ}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": about}})
    t.create(f"{AUTHZ}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": about}}, user=USER)
    path = {"path": "/apis", "verb": "get"}
    t.create(f"{AUTHZ}/selfsubjectaccessreviews", {"spec": {"nonResourceAttributes": path}}, user=USER)
    t.create(f"{AUTHZ}/selfsubjectaccessreviews", {"spec": {}})
    both = {"resourceAttributes": about, "nonResourceAttributes": path}
    t.create(f"{AUTHZ}/selfsubjectaccessreviews", {"spec": both})


@case()
def access_of_others(t: Talk) -> None:
    about = {"namespace": t.ns, "verb": "create", "group": GROUP, "resource": "gadgets", "subresource": "status"}
    _access(t, "subjectaccessreviews", user=USER, resourceAttributes=about)
    _access(t, "subjectaccessreviews", user="x", groups=["system:masters"], resourceAttributes=about)
    _access(t, "subjectaccessreviews", user="x", groups=["a"], uid="u", extra={"K": ["v"]}, resourceAttributes=about)
    _access(t, "subjectaccessreviews", resourceAttributes=about)
    _access(t, "subjectaccessreviews", user=USER)
    body = {"spec": {"user": USER, "resourceAttributes": about}}
    t.create(f"{AUTHZ}/namespaces/{{ns}}/localsubjectaccessreviews", {"metadata": {"namespace": t.ns}, **body})
    elsewhere = {"user": USER, "resourceAttributes": about | {"namespace": "other"}}
    t.create(f"{AUTHZ}/namespaces/{{ns}}/localsubjectaccessreviews", {"spec": elsewhere})
    t.create(f"{AUTHZ}/subjectaccessreviews", body, user=USER)


@case()
def own_rules(t: Talk) -> None:
    def shape(body: Any) -> Any:
        status = body["status"]
        return {"keys": sorted(status), "incomplete": status["incomplete"], "spec": body["spec"]}

    t.create(f"{AUTHZ}/selfsubjectrulesreviews", {"spec": {"namespace": t.ns}}, pick=shape)
    t.create(f"{AUTHZ}/selfsubjectrulesreviews", {"spec": {}})


@case()
def who_am_i(t: Talk) -> None:
    t.create(f"{AUTHN}/selfsubjectreviews", {}, headers={"Impersonate-User": "x", "Impersonate-Group": "g"})
    acting = {"Impersonate-User": "x", "Impersonate-Uid": "u1", "Impersonate-Extra-Some%2FKey": "v"}
    t.create(f"{AUTHN}/selfsubjectreviews", {}, headers=acting)
    account = {"Impersonate-User": f"system:serviceaccount:{t.ns}:default"}
    t.create(f"{AUTHN}/selfsubjectreviews", {}, headers=account)
    t.create(f"{AUTHN}/selfsubjectreviews", {}, headers={"Impersonate-User": "system:anonymous"})


@case()
def impersonation_refused(t: Talk) -> None:
    token = _token(t)
    for acting in ({"Impersonate-User": "x"}, {"Impersonate-User": "system:serviceaccount:kube-system:default"}):
        t.get(MAPS, anonymous=True, headers={"Authorization": f"Bearer {token}", **acting})
    t.get(MAPS, headers={"Impersonate-Group": "x"})


def _token(t: Talk, **spec: Any) -> str:
    place = "/api/v1/namespaces/{ns}/serviceaccounts/default/token"
    answer = t.given(place, {"spec": spec})
    return str(answer.body["status"]["token"])


TOKENS = "/api/v1/namespaces/{ns}/serviceaccounts/default/token"


@case()
def tokens(t: Talk) -> None:
    made = t.create(TOKENS, {"spec": {"audiences": ["contract"], "expirationSeconds": 1200}})
    t.create(TOKENS, {"spec": {}}, pick=lambda body: sorted(body["spec"]))
    t.create(TOKENS, {"spec": {"expirationSeconds": 10}})
    t.create("/api/v1/namespaces/{ns}/serviceaccounts/none/token", {"spec": {}})
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "none"}
    t.create(TOKENS, {"spec": {"boundObjectRef": bound}})
    t.create(TOKENS, {"spec": {"boundObjectRef": {"kind": "Service", "apiVersion": "v1", "name": "none"}}})
    assert made.status == 201


@case()
def token_use(t: Talk) -> None:
    token = _token(t)
    bearer = {"Authorization": f"Bearer {token}"}
    t.get(MAPS, anonymous=True, headers=bearer)
    t.create(f"{AUTHN}/selfsubjectreviews", {}, anonymous=True, headers=bearer)
    other = _token(t, audiences=["contract"])
    t.get(MAPS, anonymous=True, headers={"Authorization": f"Bearer {other}"})


@case()
def token_reviews(t: Talk) -> None:
    other = _token(t, audiences=["contract"])

    def ask(spec: Any) -> None:
        t.create(f"{AUTHN}/tokenreviews", {"spec": spec})

    ask({"token": _token(t)})
    ask({"token": other, "audiences": ["contract", "more"]})
    t.normal._words = False
    ask({"token": other})
    ask({"token": "nonsense"})
    ask({})


@case()
def bound_tokens(t: Talk) -> None:
    """A token is worth as much as the Pod it is bound to."""
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}
    pod = t.given(PODS, {"metadata": {"name": "p"}, "spec": spec})
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": pod.uid}
    token = _token(t, boundObjectRef=bound)
    t.create(TOKENS, {"spec": {"boundObjectRef": bound | {"uid": "11111111-2222-3333-4444-555555555555"}}})
    bearer = {"Authorization": f"Bearer {token}"}
    t.create(f"{AUTHN}/selfsubjectreviews", {}, anonymous=True, headers=bearer)
    t.send("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})
    deadline = time.monotonic() + 30
    while t.send("GET", MAPS, anonymous=True, headers=bearer).status != 401:
        assert time.monotonic() < deadline, "the token outlived its Pod"
        time.sleep(0.1)
    t.get(MAPS, anonymous=True, headers=bearer)


@case(words=False)
def escalation(t: Talk) -> None:
    """Nobody grants what they do not hold."""
    user = t.own("climber", "CLIMBER")
    rules = [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]}]
    t.given(f"{RBAC}/namespaces/{{ns}}/roles", {"metadata": {"name": "writer"}, "rules": rules})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"}
    subjects = [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}]
    t.given(f"{RBAC}/namespaces/{{ns}}/rolebindings", {"metadata": {"name": "w"}, "roleRef": ref, "subjects": subjects})
    _allowed(t, f"{RBAC}/namespaces/{{ns}}/roles", user)
    more = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    t.create(f"{RBAC}/namespaces/{{ns}}/roles", {"metadata": {"name": "more"}, "rules": more}, user=user)
    t.create(f"{RBAC}/namespaces/{{ns}}/roles", {"metadata": {"name": "same"}, "rules": rules}, user=user)
    admin = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {"metadata": {"name": "up"}, "roleRef": admin, "subjects": subjects}
    t.create(f"{RBAC}/namespaces/{{ns}}/rolebindings", binding, user=user)


@case(words=False)
def bad_roles(t: Talk) -> None:
    place = f"{RBAC}/namespaces/{{ns}}"
    t.create(f"{place}/roles", {"metadata": {"name": "a"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]})
    t.create(f"{place}/roles", {"metadata": {"name": "a"}, "rules": [{"verbs": ["get"]}]})
    t.create(f"{place}/roles", {"metadata": {"name": "a"}, "rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    t.create(
        f"{place}/rolebindings",
        {"metadata": {"name": "a"}, "roleRef": ref, "subjects": [{"kind": "Robot", "name": "x"}]},
    )
    t.create(f"{place}/rolebindings", {"metadata": {"name": "a"}, "roleRef": ref | {"kind": "Thing"}})
    t.create(
        f"{place}/rolebindings",
        {"metadata": {"name": "a"}, "roleRef": ref, "subjects": [{"kind": "ServiceAccount", "name": "x"}]},
    )
    t.given(f"{place}/rolebindings", {"metadata": {"name": "b"}, "roleRef": ref})
    t.patch(f"{place}/rolebindings/b", {"roleRef": {"name": "other"}})
