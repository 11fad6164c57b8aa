"""Who asks.

Either the API server's aggregation layer, which proves itself by its client certificate and then speaks for a user, or
somebody with a token. Everybody else is nobody: headers without that certificate mean nothing. Admission reviews come
the first way and from one user only, the API server itself (docs/decisions/0021-who-sends-a-review.md).
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from aiohttp import web
from multidict import CIMultiDictProxy

from virt_api.frontproxy import FrontProxy
from virt_api.kube import Kube
from virt_api.problems import Problem
from virt_core.apis.auth import TokenReview, TokenReviewSpec, UserInfo
from virt_core.kube.errors import ApiError
from virt_core.runtime.clock import Clock

_TOKEN_LIMIT = 16 << 10
#: Who the API server is to itself when it asks its own aggregation layer.
API_SERVER = "system:apiserver"


@dataclass(frozen=True, slots=True)
class Identity:
    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, list[str]] = field(default_factory=dict)


class Authenticator:
    """Knows a token for a short while, so that a burst of calls is one review."""

    def __init__(
        self, kube: Kube, clock: Clock, proxy: Callable[[], FrontProxy], *, remember_s: float = 10.0, limit: int = 512
    ) -> None:
        self._kube, self._clock, self._proxy = kube, clock, proxy
        self._remember_s, self._limit = remember_s, limit
        self._known: OrderedDict[bytes, tuple[float, Identity]] = OrderedDict()

    async def identify(self, request: web.Request) -> Identity:
        """Raises Problem 401."""
        proxy = self._proxy()
        if proxy.trusts(request.get_extra_info("peercert")):
            return from_headers(request.headers, proxy)
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip() or len(token) > _TOKEN_LIMIT:
            raise Problem(401, "Unauthorized: neither a trusted front proxy nor a bearer token")
        return await self.by_token(token.strip())

    def require_api_server(self, request: web.Request) -> None:
        """Raises Problem 403 unless the API server itself asks. Cheap: looks at no token and asks nobody."""
        proxy = self._proxy()
        if not proxy.trusts(request.get_extra_info("peercert")) or _user(request.headers, proxy) != API_SERVER:
            raise Problem(403, "Forbidden: an AdmissionReview is believed only when it comes from the API server")

    async def by_token(self, token: str) -> Identity:
        """Raises Problem 401."""
        digest = hashlib.sha256(token.encode()).digest()
        now = self._clock.monotonic()
        known = self._known.get(digest)
        if known is not None and known[0] > now:
            return known[1]
        identity = await self._review(token)
        self._known[digest] = (now + self._remember_s, identity)
        self._known.move_to_end(digest)
        while len(self._known) > self._limit:
            self._known.popitem(last=False)
        return identity

    async def _review(self, token: str) -> Identity:
        try:
            review = await self._kube.review_token(TokenReview(spec=TokenReviewSpec(token=token)))
        except ApiError as error:
            raise Problem(500, f"the token cannot be checked: {error}") from error
        user: UserInfo | None = review.status.user
        if not review.status.authenticated or user is None or not user.username:
            raise Problem(401, "Unauthorized: the token is not valid")
        return Identity(user.username, user.uid, tuple(user.groups), user.extra)


def from_headers(headers: CIMultiDictProxy[str], proxy: FrontProxy) -> Identity:
    """The user that the aggregation layer speaks for."""
    user = _user(headers, proxy)
    if not user:
        raise Problem(401, "Unauthorized: the front proxy names no user")
    extra: dict[str, list[str]] = {}
    for key, value in headers.items():
        for prefix in proxy.extra_prefixes:
            if key.lower().startswith(prefix.lower()):
                extra.setdefault(unquote(key[len(prefix) :].lower()), []).append(value)
    groups = tuple(group for name in proxy.group_headers for group in headers.getall(name, []))
    return Identity(user, _first(headers, proxy.uid_headers), groups, extra)


def _user(headers: CIMultiDictProxy[str], proxy: FrontProxy) -> str:
    return _first(headers, proxy.user_headers)


def _first(headers: CIMultiDictProxy[str], names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := headers.get(name, ""))), "")
