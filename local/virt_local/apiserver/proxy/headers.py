"""Which headers travel on: never a credential, never a claim of identity that we did not make ourselves."""

from __future__ import annotations

from urllib.parse import quote

from multidict import CIMultiDict, CIMultiDictProxy

from virt_local.apiserver.hooks import User

_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_OURS = ("authorization", "x-remote-", "impersonate-", "x-forwarded-", "host", "content-length")
_BEARER = "base64url.bearer.authorization.k8s.io."


def forwarded(headers: CIMultiDictProxy[str], *, upgrade: bool = False) -> CIMultiDict[str]:
    """The client's headers for the other server. An upgrade keeps the two headers that make it one."""
    kept: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        lowered = name.lower()
        if lowered.startswith(_OURS) or (lowered in _HOP and not (upgrade and lowered in ("connection", "upgrade"))):
            continue
        if lowered == "sec-websocket-protocol":
            value = _without_token(value)  # noqa: PLW2901 - the loop's value is what we pass on
            if not value:
                continue
        kept.add(name, value)
    return kept


def returned(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """The other server's headers for the client."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _HOP)


def identity(user: User) -> CIMultiDict[str]:
    """Who asks, for a server that trusts our client certificate."""
    said: CIMultiDict[str] = CIMultiDict({"X-Remote-User": user.name})
    if user.uid:
        said["X-Remote-Uid"] = user.uid
    for group in user.groups:
        said.add("X-Remote-Group", group)
    for key, values in user.extra.items():
        for value in values:
            said.add(f"X-Remote-Extra-{quote(key, safe='')}", value)
    return said


def _without_token(protocols: str) -> str:
    """A websocket client may put its token among the subprotocols: it was for us."""
    names = [name.strip() for name in protocols.split(",")]
    return ", ".join(name for name in names if not name.startswith(_BEARER))
