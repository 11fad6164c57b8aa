"""`kubectl --as`: a user who may impersonate speaks for another, for each name, group and extra they claim."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol
from urllib.parse import unquote

from aiohttp import web

from virt_local.apiserver import errors
from virt_local.apiserver.attributes import attributes_of, refusal
from virt_local.apiserver.hooks import Attributes, Decision, User
from virt_local.apiserver.request import parse_target

_USER, _GROUP, _UID, _EXTRA = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "impersonate-extra-"
_ACCOUNT = "system:serviceaccount:"
_AUTHENTICATED = "system:authenticated"


class Authorize(Protocol):
    async def authorize(self, user: User, attributes: Attributes) -> Decision: ...


class Impersonator:
    def __init__(self, authorizer: Authorize) -> None:
        self._authorizer = authorizer

    async def apply(self, request: web.Request, user: User) -> User:
        """The user to act as: the impersonated one when asked for and allowed, else the one who asks."""
        name = request.headers.get(_USER, "")
        groups = tuple(request.headers.getall(_GROUP, ()))
        uid = request.headers.get(_UID, "")
        extra = _extras(request)
        if not name:
            if groups or uid or extra:
                raise errors.bad_request(_nameless(groups, uid, extra))
            return user
        for asked in _questions(name, groups, uid, extra):
            decision = await self._authorizer.authorize(user, asked)
            if not decision.allowed:
                raise _refusal(user, name, request)
        return User(name, _groups(name, groups), uid, extra)


def _nameless(groups: tuple[str, ...], uid: str, extra: dict[str, tuple[str, ...]]) -> str:
    """In the words of the real server, which shows the user it could not make."""
    listed = "[]string{" + ", ".join(f'"{group}"' for group in groups) + "}" if groups else "[]string(nil)"
    more = "map[string][]string(nil)" if not extra else f"map[string][]string{sorted(extra)}"
    shown = f'&user.DefaultInfo{{Name:"", UID:"{uid}", Groups:{listed}, Extra:{more}}}'
    return f"requested {shown} without impersonating a user name"


def _refusal(user: User, name: str, request: web.Request) -> errors.ApiError:
    """What is refused is the request itself, as somebody else."""
    target = parse_target(request.method, request.path, request.query)
    asked = attributes_of(target, request.query)
    whom = "serviceaccount" if name.startswith(_ACCOUNT) else "user-info"
    return refusal(user, replace(asked, verb=f"impersonate-on:{whom}:{asked.verb}"))


def _questions(name: str, groups: tuple[str, ...], uid: str, extra: dict[str, tuple[str, ...]]) -> Iterator[Attributes]:
    if name.startswith(_ACCOUNT) and name.count(":") == 3:
        _, _, namespace, account = name.split(":")
        yield _question("", "serviceaccounts", account, namespace=namespace)
    else:
        yield _question("", "users", name)
    for group in groups:
        yield _question("", "groups", group)
    if uid:
        yield _question("authentication.k8s.io", "uids", uid)
    for key, values in extra.items():
        for value in values:
            yield _question("authentication.k8s.io", "userextras", value, subresource=key)


def _question(group: str, resource: str, name: str, *, namespace: str = "", subresource: str = "") -> Attributes:
    return Attributes(
        verb="impersonate",
        is_resource=True,
        group=group,
        version="v1",
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def _groups(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    implied: tuple[str, ...] = ()
    if name.startswith(_ACCOUNT) and not groups:
        implied = ("system:serviceaccounts", f"system:serviceaccounts:{name.split(':')[2]}")
    if name == "system:anonymous":
        return ("system:unauthenticated",)
    return tuple(dict.fromkeys((*groups, *implied, _AUTHENTICATED)))


def _extras(request: web.Request) -> dict[str, tuple[str, ...]]:
    extra: dict[str, tuple[str, ...]] = {}
    for header, value in request.headers.items():
        lowered = header.lower()
        if lowered.startswith(_EXTRA):
            key = unquote(lowered.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), value)
    return extra
