"""ServiceAccount tokens: who can make them, what they are bound to, when they end."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from framework.stored import FakeSource, meta

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import Attributes, Decision, User
from virt_local.apiserver.security.authenticator import Authenticator
from virt_local.apiserver.security.impersonation import Impersonator
from virt_local.apiserver.security.issuer import TokenIssuer
from virt_local.apiserver.security.tokens import InvalidToken, Signer

ISSUER = "https://kubernetes.default.svc"
ACCOUNT = {"metadata": meta("bot", "ns1")}


class Nobody:
    async def authorize(self, user: User, attributes: Attributes) -> Decision:
        return Decision(False)


class Rig:
    def __init__(self) -> None:
        self.now = 1000.0
        self.source = FakeSource()
        self.signer = Signer(ec.generate_private_key(ec.SECP256R1()))
        self.source.put("serviceaccounts", ACCOUNT)
        pod = {"metadata": meta("p", "ns1"), "spec": {"nodeName": "node1", "serviceAccountName": "bot"}}
        self.source.put("pods", pod)
        self.source.put("nodes", {"metadata": meta("node1")})
        self.issuer = TokenIssuer(self.source, self.signer, ISSUER, lambda: self.now)
        self.authenticator = Authenticator(
            self.source, self.signer, ISSUER, Impersonator(Nobody()), now=lambda: self.now
        )

    def issue(self, **spec: Any) -> str:
        answer = asyncio.run(self.issuer.issue(ACCOUNT, {"kind": "TokenRequest", "spec": spec}))
        return str(answer["status"]["token"])

    def review(self, token: str, *audiences: str) -> tuple[User | None, str]:
        found = asyncio.run(self.authenticator.review_token(token, audiences))
        return found.user, found.error


@pytest.fixture
def rig() -> Rig:
    return Rig()


def bound(kind: str, name: str, uid: str = "") -> dict[str, str]:
    return {"kind": kind, "name": name, "uid": uid or f"uid-{name}"}


def test_a_token_names_its_account(rig: Rig) -> None:
    user, why = rig.review(rig.issue())
    assert user is not None, why
    assert user.name == "system:serviceaccount:ns1:bot"
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:ns1", "system:authenticated")
    assert user.uid == "uid-bot"


def test_a_pod_token_says_pod_and_node(rig: Rig) -> None:
    user, _ = rig.review(rig.issue(boundObjectRef=bound("Pod", "p")))
    assert user is not None
    assert user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
    assert user.extra["authentication.kubernetes.io/node-name"] == ("node1",)


def test_a_token_dies_with_its_pod_account_or_node(rig: Rig) -> None:
    """Also when another object of the same name takes its place."""
    of_pod, of_node = rig.issue(boundObjectRef=bound("Pod", "p")), rig.issue(boundObjectRef=bound("Node", "node1"))
    rig.source.remove("pods", "p", "ns1")
    rig.source.put("nodes", {"metadata": {**meta("node1"), "uid": "another"}})
    assert rig.review(of_pod)[0] is None
    assert rig.review(of_node)[0] is None
    plain = rig.issue()
    rig.source.remove("serviceaccounts", "bot", "ns1")
    assert rig.review(plain)[0] is None


def test_a_token_ends(rig: Rig) -> None:
    token = rig.issue(expirationSeconds=600)
    assert rig.review(token)[0] is not None
    rig.now += 601
    user, why = rig.review(token)
    assert user is None
    assert why == "invalid bearer token"


def test_a_token_for_another_audience_is_refused(rig: Rig) -> None:
    token = rig.issue(audiences=["vault"])
    assert rig.review(token)[0] is None
    assert rig.review(token, "vault")[0] is not None


def test_a_foreign_signature_is_refused(rig: Rig) -> None:
    other = Signer(ec.generate_private_key(ec.SECP256R1()))
    claims = {"iss": ISSUER, "aud": [ISSUER], "exp": 2000, "nbf": 0}
    with pytest.raises(InvalidToken, match="signature"):
        rig.signer.verify(other.sign(claims), ISSUER, [ISSUER], 1000)


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS256"])
def test_the_token_does_not_choose_the_algorithm(rig: Rig, algorithm: str) -> None:
    header, payload, signature = rig.issue().split(".")
    forged = base64.urlsafe_b64encode(json.dumps({"alg": algorithm}).encode()).rstrip(b"=").decode()
    for last in (signature, ""):
        assert rig.review(f"{forged}.{payload}.{last}")[0] is None
    assert rig.review(f"{header}.{payload}.{signature}")[0] is not None


@pytest.mark.parametrize("token", ["", "a", "a.b", "a.b.c", "..", "é.b.c", "x" * 20000])
def test_garbage_is_no_token(rig: Rig, token: str) -> None:
    assert rig.review(token)[0] is None


def test_changed_claims_are_noticed(rig: Rig) -> None:
    header, payload, signature = rig.issue().split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    claims["kubernetes.io"]["serviceaccount"]["name"] = "admin"
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    assert rig.review(f"{header}.{forged}.{signature}")[0] is None


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"expirationSeconds": 10}, 422),
        ({"boundObjectRef": bound("Pod", "absent")}, 404),
        ({"boundObjectRef": bound("Pod", "p", "wrong")}, 409),
        ({"boundObjectRef": bound("Secret", "s")}, 400),
    ],
)
def test_impossible_requests_are_refused(rig: Rig, spec: dict[str, Any], code: int) -> None:
    with pytest.raises(errors.ApiError) as caught:
        rig.issue(**spec)
    assert caught.value.code == code


def test_a_pod_of_another_account_gets_no_token(rig: Rig) -> None:
    other = {"metadata": meta("q", "ns1"), "spec": {"serviceAccountName": "somebody"}}
    rig.source.put("pods", other)
    with pytest.raises(errors.ApiError, match="another account"):
        rig.issue(boundObjectRef=bound("Pod", "q"))
