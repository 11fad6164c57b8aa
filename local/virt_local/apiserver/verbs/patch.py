"""Patch: four formats, one path into the update."""

from __future__ import annotations

import copy
from typing import Any

from virt_local.apiserver import errors
from virt_local.apiserver.patches.apply import Applier, apply
from virt_local.apiserver.patches.json_patch import apply_json_patch
from virt_local.apiserver.patches.merge import apply_merge_patch
from virt_local.apiserver.patches.strategic import apply_strategic_patch
from virt_local.apiserver.request import is_true
from virt_local.apiserver.schema import prune
from virt_local.apiserver.verbs.body import check_identity, media_type, parse
from virt_local.apiserver.verbs.call import Answer, Call
from virt_local.apiserver.verbs.checks import APPLY_PATCH
from virt_local.apiserver.verbs.create import create_object
from virt_local.apiserver.verbs.options import check_write
from virt_local.apiserver.verbs.update import Change, modify

Object = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
BUILTIN_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
CUSTOM_TYPES = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)


async def patch(call: Call) -> Answer:
    kind = media_type(call.content_type)
    known = CUSTOM_TYPES if call.kind.custom else BUILTIN_TYPES
    if kind not in known:
        if not call.kind.custom:
            raise errors.ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", bare=True)
        raise errors.unsupported_media_type(call.content_type, known)
    check_write("patch", call.query, apply=kind == APPLY_PATCH)
    if kind == APPLY_PATCH:
        return await _apply(call)
    return await modify(call, patcher(call, kind), retry=True, track=True)


def patcher(call: Call, kind: str) -> Change:
    """A function that applies the request's patch to any state of the object."""
    change = parse(call.body, "application/json")
    if kind == JSON_PATCH:
        return lambda current: _object(apply_json_patch(current, change))
    if not isinstance(change, dict):
        raise errors.bad_request("a merge patch is an object")
    if kind == MERGE_PATCH:
        return lambda current: _object(apply_merge_patch(current, change))
    return lambda current: _object(apply_strategic_patch(current, change, call.kind.node))


def _object(value: Any) -> Object:
    if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        raise errors.bad_patch(value, "the patched document is not an object with metadata")
    return value


async def _apply(call: Call) -> Answer:
    wanted = parse(call.body, "application/yaml" if not call.body.lstrip().startswith(b"{") else "application/json")
    if not isinstance(wanted, dict):
        raise errors.bad_request("the applied configuration is not an object")
    _check_type(call, wanted)
    check_identity(call, wanted)
    if wanted["metadata"].get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    unknown = prune(copy.deepcopy(wanted), call.kind.node)
    if unknown:
        about = f"(/{call.name}; {call.kind.group}/{call.kind.version}, Kind={call.kind.kind})"
        raise errors.storage(
            f"failed to create typed patch object {about}: .{unknown[0]}: field not declared in schema"
        )
    if call.server.store.get(call.kind.storage, call.namespace, call.name) is None:
        return await _apply_new(call, wanted)
    return await modify(call, lambda current: _merge(call, current, wanted), retry=True, track=False)


def _check_type(call: Call, wanted: Object) -> None:
    version, kind = str(wanted.get("apiVersion") or ""), str(wanted.get("kind") or "")
    if (version, kind) != (call.kind.api_version, call.kind.kind):
        raise errors.bad_request(f"invalid object type: {version if '/' in version else f'/{version}'}, Kind={kind}")


async def _apply_new(call: Call, wanted: Object) -> Answer:
    if call.subresource:
        raise call.not_found()
    if wanted["metadata"].get("uid"):
        uid = wanted["metadata"]["uid"]
        raise call.conflict(f"uid mismatch: the provided object specified uid {uid}, and no existing object was found")
    return await create_object(call, _merge(call, None, wanted))


def _merge(call: Call, current: Object | None, wanted: Object) -> Object:
    applier = Applier(call.manager, is_true(call.query.get("force")), call.subresource)
    return apply(current, wanted, call.kind.node, applier)
