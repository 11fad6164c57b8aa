"""Who asks: a client certificate of the cluster CA, a ServiceAccount token, or a token from the static file.

A request that shows no valid credential has no user. Identity comes from the TLS connection or from a signature, never
from a header that the client may write as it likes; impersonation headers are honoured only after a rights check.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import hmac
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.x509.oid import NameOID

from virt_local.apiserver.hooks import ANONYMOUS, Object, Reviewed, User
from virt_local.apiserver.security.impersonation import Impersonator
from virt_local.apiserver.security.objects import Source
from virt_local.apiserver.security.tokens import BoundObject, Claims, InvalidToken, Signer, WrongAudience

AUTHENTICATED = "system:authenticated"
_PREFIX = "authentication.kubernetes.io"
_WEBSOCKET_BEARER = "base64url.bearer.authorization.k8s.io."
_CACHE_LIMIT = 1024
_INVALID = "invalid bearer token"


@dataclass(frozen=True, slots=True)
class _Certified:
    user: User
    not_after: float


class Authenticator:
    """Implements hooks.Authenticator."""

    def __init__(
        self,
        source: Source,
        signer: Signer,
        issuer: str,
        impersonator: Impersonator,
        *,
        static_tokens: dict[str, User] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._signer = signer
        self.issuer = issuer
        self._impersonator = impersonator
        self._static = static_tokens or {}
        self._now = now
        self._certified: dict[bytes, _Certified] = {}
        self._verified: dict[str, Claims] = {}

    async def authenticate(self, request: web.Request) -> User | None:
        """Nobody in particular may ask too, for what RBAC gives to everybody. A credential that is bad is refused."""
        certificate, token = _peer(request), bearer_token(request)
        user = self._by_certificate(certificate) if certificate else self._by_bearer(token)
        if user is None:
            return None
        return await self._impersonator.apply(request, user)

    async def review_token(self, token: str, audiences: Sequence[str]) -> Reviewed:
        wanted = tuple(audiences) or (self.issuer,)
        try:
            return Reviewed(self._by_token(token, wanted), self._audiences(token, wanted))
        except WrongAudience as err:
            return Reviewed(None, error=f"[{_INVALID}, {err}]")
        except InvalidToken:
            return Reviewed(None, error=_INVALID)

    def _audiences(self, token: str, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """Those of the asked ones that the token is meant for. A static token is meant for all."""
        known = self._verified.get(token)
        return wanted if known is None else tuple(audience for audience in wanted if audience in known.audiences)

    # Certificates.

    def _by_certificate(self, der: bytes) -> User | None:
        found = self._certified.get(der)
        if found is None:
            found = _read_certificate(der)
            if len(self._certified) >= _CACHE_LIMIT:
                self._certified.clear()
            self._certified[der] = found
        # The handshake checked the dates once; a connection may outlive them.
        return found.user if self._now() < found.not_after else None

    # Tokens.

    def _by_bearer(self, token: str) -> User | None:
        if not token:
            return ANONYMOUS
        try:
            return self._by_token(token, (self.issuer,))
        except InvalidToken:
            return None

    def _by_token(self, token: str, audiences: Sequence[str]) -> User:
        for known, user in self._static.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                return user
        return self._account_user(self._claims(token, audiences))

    def _claims(self, token: str, audiences: Sequence[str]) -> Claims:
        """Checks the signature once for each token; dates and audience each time."""
        known = self._verified.get(token)
        if known is not None and self._now() < known.expires and set(audiences) & set(known.audiences):
            return known
        claims = self._signer.verify(token, self.issuer, audiences, self._now())
        if len(self._verified) >= _CACHE_LIMIT:
            self._verified.clear()
        self._verified[token] = claims
        return claims

    def _account_user(self, claims: Claims) -> User:
        """The token is only as alive as the objects it names."""
        account = self._living("serviceaccounts", claims.namespace, claims.account)
        extra: dict[str, tuple[str, ...]] = {f"{_PREFIX}/credential-id": (f"JTI={claims.token_id}",)}
        if claims.pod is not None:
            self._living("pods", claims.namespace, claims.pod)
            extra |= _extra("pod", claims.pod)
        if claims.node is not None:
            if claims.pod is None:
                self._living("nodes", "", claims.node)
            extra |= _extra("node", claims.node)
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{claims.namespace}", AUTHENTICATED)
        name = f"system:serviceaccount:{claims.namespace}:{claims.account.name}"
        return User(name, groups, account["metadata"]["uid"], extra)

    def _living(self, resource: str, namespace: str, ref: BoundObject) -> Object:
        record = self._source.get(resource, namespace, ref.name)
        if record is None or record.uid != ref.uid:
            raise InvalidToken(f"the token names {resource} {ref.name!r}, which is gone")
        return {"metadata": {"uid": record.uid}}


def _peer(request: web.Request) -> bytes | None:
    """The client's certificate, which the handshake has checked."""
    transport = request.transport
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object") if transport else None
    return tls.getpeercert(binary_form=True) if tls else None


def _extra(kind: str, ref: BoundObject) -> dict[str, tuple[str, ...]]:
    fields: dict[str, tuple[str, ...]] = {f"{_PREFIX}/{kind}-name": (ref.name,)}
    if ref.uid:
        fields[f"{_PREFIX}/{kind}-uid"] = (ref.uid,)
    return fields


def bearer_token(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip()
    return _websocket_token(request.headers.get("Sec-WebSocket-Protocol", ""))


def _websocket_token(protocols: str) -> str:
    """Browsers cannot set headers on a websocket, so the token may travel among the subprotocols."""
    for protocol in protocols.split(","):
        name = protocol.strip()
        if name.startswith(_WEBSOCKET_BEARER):
            encoded = name.removeprefix(_WEBSOCKET_BEARER)
            try:
                return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
            except (binascii.Error, ValueError):
                return ""
    return ""


def _read_certificate(der: bytes) -> _Certified:
    certificate = x509.load_der_x509_certificate(der)
    names = [str(part.value) for part in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(part.value) for part in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    if not names:
        return _Certified(User("system:anonymous", ("system:unauthenticated",)), 0)
    shown = f"X509SHA256={hashlib.sha256(der).hexdigest()}"
    user = User(names[-1], (*groups, AUTHENTICATED), extra={f"{_PREFIX}/credential-id": (shown,)})
    return _Certified(user, certificate.not_valid_after_utc.timestamp())


def read_static_tokens(path: Path) -> dict[str, User]:
    """A CSV file as kube-apiserver takes it: token, user, uid, "group1,group2"."""
    tokens: dict[str, User] = {}
    with path.open(newline="") as stream:
        for row in csv.reader(stream):
            if len(row) < 3 or row[0].startswith("#"):
                continue
            groups = tuple(group.strip() for group in row[3].split(",") if group.strip()) if len(row) > 3 else ()
            tokens[row[0]] = User(row[1], (*groups, AUTHENTICATED), row[2])
    return tokens
