"""The kinds that are questions: who is this token, may they do that. Answered at once, never stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from virt_local.apiserver import errors
from virt_local.apiserver.hooks import Attributes, User
from virt_local.apiserver.meta import now_text
from virt_local.apiserver.patches.ownership import track_create
from virt_local.apiserver.schema.validate import bad_value
from virt_local.apiserver.verbs.body import check_identity, read_object
from virt_local.apiserver.verbs.call import Answer, Call
from virt_local.apiserver.verbs.checks import normalise

Object = dict[str, Any]


async def review(call: Call) -> Answer:
    obj = read_object(call)
    check_identity(call, obj)
    normalise(call, obj)
    track_create(call.kind, obj, call.manager)
    await _REVIEWS[call.kind.kind](call, obj)
    return Answer(201, obj=obj)


async def _token_review(call: Call, obj: Object) -> None:
    spec = obj.get("spec") or {}
    if not spec.get("token"):
        raise errors.bad_request("token is required for TokenReview in authentication")
    found = await call.server.hooks.authenticator.review_token(spec["token"], spec.get("audiences") or [])
    if found.user is None:
        obj["status"] = {"user": {}, "error": found.error} if found.error else {"user": {}}
        return
    obj["status"] = {"authenticated": True, "user": _user_info(found.user), "audiences": list(found.audiences)}


def _user_info(user: User) -> Object:
    info: Object = {"username": user.name, "uid": user.uid, "groups": list(user.groups)}
    info["extra"] = {key: list(values) for key, values in user.extra.items()}
    return {key: value for key, value in info.items() if value}


async def _self_review(call: Call, obj: Object) -> None:
    obj["metadata"] = {"creationTimestamp": now_text()}
    obj["status"] = {"userInfo": _user_info(call.user)}


async def _access_review(call: Call, obj: Object) -> None:
    spec = obj.get("spec") or {}
    if not spec.get("user") and not spec.get("groups"):
        raise _refused(call, "spec.user", "", "at least one of user or group must be specified")
    extra = {key: tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    groups = tuple(spec.get("groups") or ())
    user = User(spec.get("user") or "", groups, spec.get("uid") or "", extra)
    await _decide(call, obj, user)


async def _local_access_review(call: Call, obj: Object) -> None:
    attributes = (obj.get("spec") or {}).get("resourceAttributes") or {}
    if attributes.get("namespace") != call.namespace:
        place = "spec.resourceAttributes.namespace"
        raise _refused(call, place, attributes.get("namespace"), "must match metadata.namespace")
    await _access_review(call, obj)


async def _self_access_review(call: Call, obj: Object) -> None:
    await _decide(call, obj, call.user)


async def _decide(call: Call, obj: Object, user: User) -> None:
    spec = obj.get("spec") or {}
    about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if about is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _refused(call, "spec.resourceAttributes", None, why)
    if about is not None and path is not None:
        shown = {"Path": path.get("path", ""), "Verb": path.get("verb", "")}
        why = "cannot be specified in combination with resourceAttributes"
        raise _refused(call, "spec.nonResourceAttributes", shown, why)
    if about is None:
        path = path or {}
        attributes = Attributes(path.get("verb") or "", path.get("path") or "")
    else:
        names = ("group", "version", "resource", "subresource", "namespace", "name")
        known = {name: about.get(name) or "" for name in names}
        attributes = Attributes(about.get("verb") or "", is_resource=True, **known)
    decision = await call.server.hooks.authorizer.authorize(user, attributes)
    obj["status"] = {"allowed": decision.allowed}
    if decision.reason:
        obj["status"]["reason"] = decision.reason


def _refused(call: Call, place: str, value: Any, why: str) -> errors.ApiError:
    """The real server names the group of these questions, not their kind."""
    return errors.invalid("", call.kind.group, "", [bad_value(place, value, why)])


async def _rules_review(call: Call, obj: Object) -> None:
    namespace = (obj.get("spec") or {}).get("namespace")
    if not namespace:
        raise errors.bad_request("no namespace on request")
    resource_rules, other_rules = await call.server.hooks.authorizer.rules(call.user, namespace)
    obj["spec"] = {}
    obj["status"] = {"resourceRules": resource_rules, "nonResourceRules": other_rules, "incomplete": False}


_REVIEWS: dict[str, Callable[[Call, Object], Awaitable[None]]] = {
    "TokenReview": _token_review,
    "SelfSubjectReview": _self_review,
    "SubjectAccessReview": _access_review,
    "LocalSubjectAccessReview": _local_access_review,
    "SelfSubjectAccessReview": _self_access_review,
    "SelfSubjectRulesReview": _rules_review,
}
