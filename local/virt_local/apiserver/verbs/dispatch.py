"""Which function serves a verb on a resource or a subresource: one row each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from virt_local.apiserver import errors
from virt_local.apiserver.kinds import Kind
from virt_local.apiserver.patches.fields import applied
from virt_local.apiserver.patches.ownership import entry
from virt_local.apiserver.request import Target
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
    issued = await call.server.hooks.token_issuer.issue(account, request)
    fields = applied({"spec": request.get("spec") or {}}, None)
    if fields["f:spec"]:
        about = {"apiVersion": "authentication.k8s.io/v1"}
        issued["metadata"]["managedFields"] = [entry(call.manager, "Update", about, fields, "token")]
    return Answer(201, obj=issued)


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
    ("resize", "get"): read.get,
    ("resize", "update"): update.update,
    ("resize", "patch"): patch.patch,
    ("scale", "get"): scale.get_scale,
    ("scale", "update"): scale.update_scale,
    ("scale", "patch"): scale.patch_scale,
    ("finalize", "update"): update.update,
    ("binding", "create"): pods.bind,
    ("eviction", "create"): pods.evict,
    ("token", "create"): _issue_token,
}
STREAMS = ("log", "exec", "attach", "portforward")


def check_place(kind: Kind, target: Target) -> None:
    """A kind in namespaces is read across all of them by lists only; one outside has no place in any."""
    misplaced = bool(target.namespace) != kind.namespaced and not _is_namespace(kind)
    if not misplaced or (kind.namespaced and target.verb in ("list", "watch") and not target.name):
        return
    if kind.custom:
        raise errors.PageNotFound
    raise errors.method_not_allowed() if kind.namespaced and not target.name else errors.path_not_found()


def _is_namespace(kind: Kind) -> bool:
    """Requests on a namespace carry its own name as their place."""
    return kind.storage == "namespaces"


def verb_of(call: Call) -> Verb:
    """The function for a request, or 404/405 when there is none."""
    kind, target = call.kind, call.target
    if target.subresource:
        return _subresource_verb(call)
    found: Verb | None
    if kind.virtual:
        found = reviews.review if target.verb == "create" else None
    else:
        found = _MAIN.get(target.verb) if target.verb in kind.verbs else None
    if found is None or (target.verb == "create" and target.name and not kind.custom):
        raise errors.method_not_allowed()
    if target.verb in ("update", "patch") and not target.name:
        raise errors.bad_request("name must be provided") if kind.custom else errors.method_not_allowed()
    return found


def _subresource_verb(call: Call) -> Verb:
    kind, target = call.kind, call.target
    if target.subresource not in kind.subresources:
        raise call.not_found() if kind.custom else errors.path_not_found()
    found = _SUBRESOURCES.get((target.subresource, target.verb))
    if found is None:
        refused = errors.subresource_not_allowed(kind.plural, kind.group, target.verb)
        raise refused if kind.custom else errors.method_not_allowed()
    return found
