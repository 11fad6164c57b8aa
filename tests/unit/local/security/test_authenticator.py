"""Who asks: certificates, bearer tokens, nobody; and who may speak for others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate
from framework.stored import FakeSource

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import ANONYMOUS, Attributes, Decision, User
from virt_local.apiserver.security.authenticator import Authenticator, read_static_tokens
from virt_local.apiserver.security.impersonation import Impersonator
from virt_local.apiserver.security.tokens import Signer
from virt_local.up import pki


class Allowing:
    """Allows `alice` to impersonate what is listed."""

    def __init__(self, *allowed: tuple[str, str]) -> None:
        self.allowed = allowed

    async def authorize(self, user: User, attributes: Attributes) -> Decision:
        return Decision(user.name == "alice" and (attributes.resource, attributes.name) in self.allowed)


class FakeTls:
    def __init__(self, der: bytes) -> None:
        self.der = der

    def getpeercert(self, binary_form: bool = False) -> bytes:
        return self.der


class FakeTransport:
    def __init__(self, tls: FakeTls | None) -> None:
        self.tls = tls

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self.tls if name == "ssl_object" else default


def certificate(tmp_path: Path, name: str, *groups: str) -> bytes:
    authority = pki.ensure_authority(tmp_path, "ca", "test CA")
    cert = tmp_path / "c.crt"
    pki.ensure_leaf(authority, cert, tmp_path / "c.key", pki.Leaf(name, groups))
    return load_pem_x509_certificate(cert.read_bytes()).public_bytes(Encoding.DER)


def authenticate(
    headers: dict[str, str] | list[tuple[str, str]] | None = None,
    *,
    der: bytes = b"",
    path: str = "/api/v1/pods",
    may: Allowing | None = None,
    now: float | None = None,
) -> User | None:
    from multidict import CIMultiDict

    clock = {} if now is None else {"now": lambda: now}
    authenticator = Authenticator(
        FakeSource(),
        Signer(ec.generate_private_key(ec.SECP256R1())),
        "iss",
        Impersonator(may or Allowing()),
        static_tokens={"s3cret": User("alice", ("devs", "system:authenticated"), "1")},
        **clock,
    )

    async def ask() -> User | None:
        transport = FakeTransport(FakeTls(der) if der else None)
        request = make_mocked_request("GET", path, headers=CIMultiDict(headers or {}), transport=transport)
        return await authenticator.authenticate(request)

    return asyncio.run(ask())


def test_nobody_is_nobody() -> None:
    """Without a credential one is anonymous, and RBAC says what that may do; a bad credential is refused at once."""
    assert authenticate() == ANONYMOUS
    assert authenticate({"Authorization": "Basic s3cret"}) == ANONYMOUS
    assert authenticate({"Authorization": "Bearer wrong"}) is None


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez", "/version"])
def test_health_is_open_to_all(path: str) -> None:
    user = authenticate(path=path)
    assert user is not None
    assert user.name == "system:anonymous"


def test_a_certificate_names_user_and_groups(tmp_path: Path) -> None:
    user = authenticate(der=certificate(tmp_path, "system:node:node1", "system:nodes"))
    assert user is not None
    assert (user.name, user.groups) == ("system:node:node1", ("system:nodes", "system:authenticated"))
    assert user.extra["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")


def test_an_expired_certificate_on_an_open_connection_is_nobody(tmp_path: Path) -> None:
    assert authenticate(der=certificate(tmp_path, "alice"), now=4e9) is None


def test_headers_of_the_client_are_no_identity() -> None:
    """X-Remote-User is what we say to others, never what others say to us."""
    assert authenticate({"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}) == ANONYMOUS


def test_a_static_token() -> None:
    user = authenticate({"Authorization": "Bearer s3cret"})
    assert user is not None
    assert user.name == "alice"


def test_a_websocket_carries_its_token_among_the_protocols() -> None:
    user = authenticate({"Sec-WebSocket-Protocol": "x, base64url.bearer.authorization.k8s.io.czNjcmV0"})
    assert user is not None
    assert user.name == "alice"


def test_impersonation_needs_the_right() -> None:
    with pytest.raises(errors.ApiError) as caught:
        authenticate({"Authorization": "Bearer s3cret", "Impersonate-User": "bob"})
    assert caught.value.code == 403
    assert "cannot impersonate" in caught.value.message


def test_impersonation_checks_each_group() -> None:
    headers = [("Authorization", "Bearer s3cret"), ("Impersonate-User", "bob"), ("Impersonate-Group", "system:masters")]
    with pytest.raises(errors.ApiError):
        authenticate(headers, may=Allowing(("users", "bob")))
    user = authenticate(headers, may=Allowing(("users", "bob"), ("groups", "system:masters")))
    assert user is not None
    assert user.groups == ("system:masters", "system:authenticated")


def test_an_impersonated_account_has_its_groups() -> None:
    headers = {"Authorization": "Bearer s3cret", "Impersonate-User": "system:serviceaccount:ns:bot"}
    user = authenticate(headers, may=Allowing(("serviceaccounts", "bot")))
    assert user is not None
    assert "system:serviceaccounts:ns" in user.groups


def test_groups_without_a_user_are_refused() -> None:
    with pytest.raises(errors.ApiError) as caught:
        authenticate({"Authorization": "Bearer s3cret", "Impersonate-Group": "x"})
    assert caught.value.code == 400


def test_the_token_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text('tok,bob,7,"a,b"\n# tok2,x,1\n')
    assert read_static_tokens(path) == {"tok": User("bob", ("a", "b", "system:authenticated"), "7")}
