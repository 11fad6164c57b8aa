"""Create: check, default, admit, number and store a new object."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver import errors
from virt_local.apiserver.builtins.strategy import prepare_create
from virt_local.apiserver.meta import generated_name, new_uid, now_text
from virt_local.apiserver.patches.ownership import track_create
from virt_local.apiserver.request import dry_run
from virt_local.apiserver.storage.store import ABSENT, Mismatch
from virt_local.apiserver.verbs.body import check_identity, read_object
from virt_local.apiserver.verbs.call import Answer, Call
from virt_local.apiserver.verbs.checks import COMPLETED, check, normalise
from virt_local.apiserver.verbs.options import check_write

Object = dict[str, Any]

_NAME_ATTEMPTS = 8
# What users' manifests may contain although only a whole cluster can do something with it.
_NOT_ENFORCED = ("networkpolicies.networking.k8s.io", "limitranges", "resourcequotas")
_SYSTEM_METADATA = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")


async def create(call: Call) -> Answer:
    check_write("create", call.query)
    return await create_object(call, read_object(call))


async def create_object(call: Call, obj: Object) -> Answer:
    check_identity(call, obj)
    normalise(call, obj)
    require_namespace(call, obj["metadata"].get("name") or "")
    for name in _SYSTEM_METADATA:
        obj["metadata"].pop(name, None)
    if not _is_apply(call):
        # What the defaults and the client say is the client's; what comes later, of admission or the server, nobody's.
        obj["metadata"].pop("managedFields", None)
        track_create(call.kind, obj, call.manager)
    is_dry = dry_run(call.query)
    request = call.admission("CREATE", obj, None, _options(call), is_dry)
    request.name = obj["metadata"].get("name") or ""
    await call.mutate(request)
    obj = _admitted(call, request.object, obj)
    _stamp(call, obj)
    request.object = obj
    with call.server.settled(call, obj, None) as unsettled:
        if unsettled:
            raise call.invalid(obj["metadata"].get("name", ""), unsettled)
        return await _store(call, obj, request, is_dry)


async def _store(call: Call, obj: Object, request: Any, is_dry: bool) -> Answer:
    metadata = obj["metadata"]
    revision = metadata.pop("resourceVersion", None)
    base = "" if metadata.get("name") else metadata.get("generateName") or ""
    for attempt in range(_NAME_ATTEMPTS):
        if base:
            metadata["name"] = generated_name(base)
        if attempt == 0:
            check(call, obj, None)
            request.name = metadata["name"]
            await call.validate(request)
            if revision:
                raise errors.storage("resourceVersion should not be set on objects to be created")
        try:
            return await _put(call, obj, is_dry)
        except Mismatch:
            if not base:
                break
    raise _already_exists(call, metadata["name"])


async def _put(call: Call, obj: Object, is_dry: bool) -> Answer:
    store, kind = call.server.store, call.kind
    if is_dry:
        if store.get(kind.storage, call.namespace, obj["metadata"]["name"]) is not None:
            raise _already_exists(call, obj["metadata"]["name"])
        return Answer(201, obj=obj)
    if kind.storage in _NOT_ENFORCED:
        call.warnings.append(f"virt-local keeps this {kind.kind}, but nothing here enforces it")
    record = await store.put(kind.storage, kind.store(dict(obj)), expect=ABSENT)
    call.server.count_write(kind, "create")
    await call.server.after_create(kind, record)
    return Answer(201, record=record)


def _already_exists(call: Call, name: str) -> errors.ApiError:
    error = errors.already_exists(call.kind.plural, call.kind.group, name)
    there = call.server.store.get(call.kind.storage, call.namespace, name)
    if there is not None and there.object()["metadata"].get("deletionTimestamp"):
        error.message = f"object is being deleted: {error.message}"
    return error


def _options(call: Call) -> Object:
    options: Object = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    for name in ("fieldManager", "fieldValidation"):
        if call.query.get(name):
            options[name] = call.query[name]
    return options | ({"dryRun": ["All"]} if dry_run(call.query) else {})


def _admitted(call: Call, obj: Object | None, given: Object) -> Object:
    """What webhooks made of the object goes through the schema again; they may not change what it is."""
    if obj is None:
        raise errors.internal("admission removed the object")
    if obj is given and call.kind.storage not in COMPLETED:
        return obj
    check_identity(call, obj)
    normalise(call, obj, validation="Ignore")
    return obj


def _stamp(call: Call, obj: Object) -> None:
    """The metadata that only the server writes."""
    metadata = obj["metadata"]
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = now_text()
    if call.kind.has_generation:
        metadata["generation"] = 1
    prepare_create(call.kind, obj)


def _is_apply(call: Call) -> bool:
    """An object that an apply makes comes with its ownership."""
    return call.target.verb == "patch"


def require_namespace(call: Call, name: str) -> None:
    """Objects live in a namespace that exists and is not going away."""
    if not call.kind.namespaced or call.kind.virtual:
        return
    if not call.namespace:
        raise errors.bad_request("an empty namespace may not be set during creation")
    record = call.server.store.get("namespaces", "", call.namespace)
    if record is None:
        raise errors.not_found("namespaces", "", call.namespace)
    if record.fields.get("status.phase") == "Terminating":
        cause = errors.Cause("metadata.namespace", f"namespace {call.namespace} is being terminated")
        why = f"unable to create new content in namespace {call.namespace} because it is being terminated"
        causes = [errors.Cause(cause.field, cause.message, "NamespaceTerminating")]
        raise errors.forbidden(call.kind.plural, call.kind.group, name, why, causes)
