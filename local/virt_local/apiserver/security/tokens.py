"""ServiceAccount tokens: signed JSON Web Tokens (ES256), bound to the objects they were made for.

Only the signature and the claims live here; whether the account, the Pod or the node still exist is asked of the store
by the authenticator at each use.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

MAX_TOKEN_BYTES = 16 * 1024
_ALGORITHM = "ES256"
_PART = 32


class InvalidToken(Exception):
    """The token is not ours, is not valid now, or is for somebody else."""


class WrongAudience(InvalidToken):
    """The token is good, but not for whoever asks."""


@dataclass(frozen=True, slots=True)
class BoundObject:
    """An object that a token names: when it goes, the token is worth nothing."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Claims:
    namespace: str
    account: BoundObject
    pod: BoundObject | None
    node: BoundObject | None
    audiences: tuple[str, ...]
    expires: float
    token_id: str


class Signer:
    """Makes and checks tokens with one key."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._public = key.public_key()
        self.key_id = _key_id(self._public)

    def sign(self, claims: Mapping[str, Any]) -> str:
        header = _encode(msgspec.json.encode({"alg": _ALGORITHM, "kid": self.key_id}))
        signed = header + b"." + _encode(msgspec.json.encode(claims))
        r, s = decode_dss_signature(self._key.sign(signed, ec.ECDSA(hashes.SHA256())))
        return (signed + b"." + _encode(r.to_bytes(_PART, "big") + s.to_bytes(_PART, "big"))).decode()

    def verify(self, token: str, issuer: str, audiences: Sequence[str], now: float) -> Claims:
        """The claims of a token that is ours, valid now and meant for one of the audiences."""
        claims = self._verified(token)
        if not claims.get("nbf", 0) <= now:
            raise InvalidToken("the token is not valid yet")
        if not now < claims.get("exp", 0):
            raise InvalidToken("the token has expired")
        if claims.get("iss") != issuer:
            raise InvalidToken("the token has another issuer")
        if not set(audiences) & set(claims.get("aud") or ()):
            has, wanted = (msgspec.json.encode(list(names)).decode() for names in (claims.get("aud") or (), audiences))
            raise WrongAudience(f"token audiences {has} is invalid for the target audiences {wanted}")
        return _parse(claims)

    def _verified(self, token: str) -> dict[str, Any]:
        parts = token.encode().split(b".")
        if len(parts) != 3 or len(token) > MAX_TOKEN_BYTES:
            raise InvalidToken("not a signed token")
        try:
            header = msgspec.json.decode(_decode(parts[0]))
            signature = _decode(parts[2])
            claims: dict[str, Any] = msgspec.json.decode(_decode(parts[1]), type=dict[str, Any])
        except (ValueError, msgspec.DecodeError) as err:
            raise InvalidToken("not a signed token") from err
        # The algorithm is ours to choose, never the token's.
        if not isinstance(header, dict) or header.get("alg") != _ALGORITHM or len(signature) != 2 * _PART:
            raise InvalidToken("not a token of this server")
        self._check_signature(parts[0] + b"." + parts[1], signature)
        return claims

    def _check_signature(self, signed: bytes, signature: bytes) -> None:
        r, s = int.from_bytes(signature[:_PART], "big"), int.from_bytes(signature[_PART:], "big")
        try:
            self._public.verify(encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature as err:
            raise InvalidToken("the token's signature is not of this server") from err


def load_signer(pem: bytes) -> Signer:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise ValueError("the key for ServiceAccount tokens must be an elliptic-curve key on P-256")
    return Signer(key)


def _parse(claims: Mapping[str, Any]) -> Claims:
    private = claims.get("kubernetes.io") or {}
    account = _bound(private.get("serviceaccount"))
    if account is None or not private.get("namespace"):
        raise InvalidToken("the token names no ServiceAccount")
    return Claims(
        namespace=private["namespace"],
        account=account,
        pod=_bound(private.get("pod")),
        node=_bound(private.get("node")),
        audiences=tuple(claims["aud"]),
        expires=float(claims["exp"]),
        token_id=str(claims.get("jti", "")),
    )


def _bound(ref: Mapping[str, str] | None) -> BoundObject | None:
    return BoundObject(ref["name"], ref.get("uid", "")) if ref else None


def _key_id(public: ec.EllipticCurvePublicKey) -> str:
    der = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _encode(hashlib.sha256(der).digest()).decode()


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _decode(data: bytes) -> bytes:
    return base64.urlsafe_b64decode(data + b"=" * (-len(data) % 4))
