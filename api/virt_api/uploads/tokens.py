"""The token that goes with an upload: for one claim, for a few minutes.

It is signed with a key that all replicas have without a further Secret: it comes from the key of the serving
certificate. A renewal of that certificate ends the tokens of the last minutes; clients ask for another one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable

from virt_api.problems import Problem
from virt_core.apis.base import UNREADABLE, Struct, decode, encode
from virt_core.runtime.clock import Clock

LIFETIME_S = 300.0
_LONGEST = 2048
_PURPOSE = b"virtpod: upload tokens, 1"


class Grant(Struct):
    """What a token is for."""

    namespace: str
    claim: str
    #: Of the claim: another one of the same name is not meant.
    uid: str
    #: Seconds since 1970.
    until: float


class Tokens:
    def __init__(self, key: Callable[[], bytes], clock: Clock) -> None:
        """`key` is the private key of the serving certificate as it is now."""
        self._key, self._clock = key, clock

    def issue(self, namespace: str, claim: str, uid: str) -> str:
        until = self._clock.now().timestamp() + LIFETIME_S
        said = encode(Grant(namespace, claim, uid, until))
        return f"{_text(said)}.{_text(self._sign(said))}"

    def read(self, token: str) -> Grant:
        """Raises Problem 401."""
        said, _, signature = token.partition(".")
        try:
            if len(token) > _LONGEST or not hmac.compare_digest(self._sign(_bytes(said)), _bytes(signature)):
                raise Problem(401, "Unauthorized: this is no upload token of ours")
            grant = decode(_bytes(said), Grant)
        except (binascii.Error, UnicodeEncodeError, *UNREADABLE) as error:
            raise Problem(401, "Unauthorized: this is no upload token") from error
        if grant.until <= self._clock.now().timestamp():
            raise Problem(401, "Unauthorized: the upload token has expired; ask for another one")
        return grant

    def _sign(self, said: bytes) -> bytes:
        key = hmac.digest(self._key(), _PURPOSE, hashlib.sha256)
        return hmac.digest(key, said, hashlib.sha256)


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
