"""Which function serves a verb on a resource or a subresource: one row each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from virt_local.apiserver import errors
from virt_local.apiserver.verbs import create, delete, patch, pods, read, reviews, scale, update
from virt_local.apiserver.verbs.body import read_object
from virt_local.apiserver.verbs.call import Answer, Call, ListAnswer

Verb = Callable[[Call], Awaitable[Answer | ListAnswer]]


async def _list(call: Call) -> ListAnswer:
    return read.list_objects(call)


async def _issue_token(call: Call) -> Answer:
    account = call.record().object()
    request = read_object(call)
    await call.validate(call.admission("CREATE", request, None, {}, False))
    return Answer(201, obj=await call.server.hooks.token_issuer.issue(account, request))


_MAIN: dict[str, Verb] = {
    "get": read.get,
    "list": _list,
    "create": create.create,
    "update": update.update,
    "patch": patch.patch,
    "delete": delete.delete,
    "deletecollection": delete.delete_collection,
}
_SUBRESOURCES: dict[tuple[str, str], Verb] = {
    ("status", "get"): read.get,
    ("status", "update"): update.update,
    ("status", "patch"): patch.patch,
    ("scale", "get"): scale.get_scale,
    ("scale", "update"): scale.update_scale,
    ("scale", "patch"): scale.patch_scale,
    ("finalize", "update"): update.update,
    ("binding", "create"): pods.bind,
    ("eviction", "create"): pods.evict,
    ("token", "create"): _issue_token,
}
STREAMS = ("log", "exec", "attach", "portforward")


def verb_of(call: Call) -> Verb:
    """The function for a request, or 404/405 when there is none."""
    kind, target = call.kind, call.target
    if target.subresource:
        if target.subresource not in kind.subresources:
            raise errors.path_not_found()
        found = _SUBRESOURCES.get((target.subresource, target.verb))
    elif kind.virtual:
        found = reviews.review if target.verb == "create" else None
    else:
        found = _MAIN.get(target.verb) if target.verb in kind.verbs else None
    if found is None or (target.verb == "create" and target.name and not target.subresource):
        raise errors.method_not_allowed(kind.plural, kind.group, target.verb)
    return found
