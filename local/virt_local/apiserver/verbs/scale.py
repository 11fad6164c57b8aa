"""The scale subresource: one small object for the replicas of any kind."""

from __future__ import annotations

import copy
from typing import Any

from virt_local.apiserver import errors, jsonpath
from virt_local.apiserver.kinds import Scale
from virt_local.apiserver.patches.json_patch import apply_json_patch
from virt_local.apiserver.patches.merge import apply_merge_patch
from virt_local.apiserver.verbs.body import media_type, parse, read_object
from virt_local.apiserver.verbs.call import Answer, Call
from virt_local.apiserver.verbs.options import check_write
from virt_local.apiserver.verbs.patch import JSON_PATCH
from virt_local.apiserver.verbs.update import modify

Object = dict[str, Any]

_API_VERSION = "autoscaling/v1"


def _paths(call: Call) -> Scale:
    if call.kind.scale is None:
        raise errors.path_not_found()
    return call.kind.scale


def scale_of(call: Call, obj: Object) -> Object:
    paths, metadata = _paths(call), obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Object = {"replicas": int(jsonpath.first(paths.status_replicas, obj) or 0)}
    selector = jsonpath.first(paths.selector, obj) if paths.selector else None
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": _API_VERSION,
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": int(jsonpath.first(paths.spec_replicas, obj) or 0)},
        "status": status,
    }


async def get_scale(call: Call) -> Answer:
    return Answer(200, obj=scale_of(call, call.kind.view(call.record().object())))


async def update_scale(call: Call) -> Answer:
    check_write("update", call.query)
    wanted = read_object(call)
    _check_scale(call, wanted)
    return await _write(call, lambda _scale: wanted, retry=not (wanted.get("metadata") or {}).get("resourceVersion"))


def _check_scale(call: Call, scale: Object) -> None:
    if (scale.get("apiVersion") or _API_VERSION, scale.get("kind") or "Scale") != (_API_VERSION, "Scale"):
        raise errors.bad_request("no kind is registered for the type v1.Scale")
    if not (scale.get("metadata") or {}).get("name"):
        text = f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
        raise errors.bad_request(text)


async def patch_scale(call: Call) -> Answer:
    check_write("patch", call.query)
    change = parse(call.body, "application/json")
    if media_type(call.content_type) == JSON_PATCH:
        return await _write(call, lambda scale: apply_json_patch(scale, change), retry=True)
    return await _write(call, lambda scale: apply_merge_patch(scale, change), retry=True)


async def _write(call: Call, change: Any, *, retry: bool) -> Answer:
    def apply(current: Object) -> Object:
        scale = change(scale_of(call, current))
        return _with_replicas(call, current, scale)

    answer = await modify(call, apply, retry=retry, track=True)
    return Answer(200, obj=scale_of(call, answer.object(call.kind)))


def _with_replicas(call: Call, current: Object, scale: Object) -> Object:
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        where = _paths(call).spec_replicas
        cause = errors.Cause(where, f"Invalid value: {replicas}: should be a non-negative integer")
        raise call.invalid(call.name, [cause])
    new = copy.deepcopy(current)
    *heads, last = _paths(call).spec_replicas.lstrip(".").split(".")
    place = new
    for name in heads:
        place = place.setdefault(name, {})
    place[last] = replicas
    revision = (scale.get("metadata") or {}).get("resourceVersion")
    if revision:
        new["metadata"]["resourceVersion"] = revision
    return new
