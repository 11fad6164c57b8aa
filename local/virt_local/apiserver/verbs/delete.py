"""Delete: preconditions, finalizers, grace, and the final removal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from virt_local.apiserver import errors
from virt_local.apiserver.builtins.strategy import is_removable
from virt_local.apiserver.kinds import Kind
from virt_local.apiserver.meta import later_text, now_text
from virt_local.apiserver.request import dry_run
from virt_local.apiserver.storage.record import Record
from virt_local.apiserver.storage.store import Mismatch
from virt_local.apiserver.verbs.body import read_options
from virt_local.apiserver.verbs.call import Answer, Call, ListAnswer, success
from virt_local.apiserver.verbs.read import list_objects

Object = dict[str, Any]

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
CRD_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_ATTEMPTS = 5
# Kinds whose deletion answers with the object itself.
_RETURNED = ("services", "serviceaccounts", "persistentvolumes", "persistentvolumeclaims")
# Kinds that are emptied first: their deletion has no grace, and is no new wish.
_OWN_WAY = ("namespaces", "customresourcedefinitions.apiextensions.k8s.io")
_PROTECTED = ("default", "kube-system", "kube-public")


async def delete(call: Call) -> Answer:
    return await delete_object(call, read_options(call))


async def delete_object(call: Call, options: Object) -> Answer:
    """Removes the object, or marks it as deleted while somebody still holds it."""
    _refuse_protected(call)
    for _ in range(_ATTEMPTS):
        record = call.record()
        try:
            return await _delete(call, record, options)
        except Mismatch as mismatch:
            if mismatch.current is None:
                raise call.not_found() from None
    raise call.conflict()


def _refuse_protected(call: Call) -> None:
    if call.kind.storage == "namespaces" and call.name in _PROTECTED:
        raise errors.forbidden("namespaces", "", call.name, "this namespace may not be deleted")


async def _delete(call: Call, record: Record, options: Object) -> Answer:
    _check_preconditions(call, record, options)
    obj = call.kind.view(record.object())
    is_dry = dry_run(call.query, options)
    request = call.admission(
        "DELETE", None, obj, {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"} | options, is_dry
    )
    await call.mutate(request)
    await call.validate(request)
    marked = mark_deleted(call.kind, record.object(), options)
    if is_removable(call.kind, marked):
        return await _remove(call, record, marked, is_dry)
    if marked == record.object() or is_dry:
        return Answer(200, obj=call.kind.view(marked))
    written = await call.server.store.put(call.kind.storage, marked, expect=record.revision)
    call.server.count_write(call.kind, "delete")
    return Answer(200, record=written)


async def _remove(call: Call, record: Record, marked: Object, is_dry: bool) -> Answer:
    gone = record
    if not is_dry:
        store = call.server.store
        gone = await store.delete(record.resource, record.namespace, record.name, expect=record.revision)
        call.server.count_write(call.kind, "delete")
    if call.kind.storage == "pods":
        marked["metadata"]["resourceVersion"] = str(gone.revision)
        return Answer(200, obj=marked)
    if call.kind.plural in _RETURNED and not call.kind.custom:
        return Answer(200, record=gone)
    return Answer(200, obj=success(call.kind, gone))


def _check_preconditions(call: Call, record: Record, options: Object) -> None:
    wanted = options.get("preconditions") or {}
    uid, revision = wanted.get("uid"), wanted.get("resourceVersion")
    why = ""
    if uid and uid != record.uid:
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({record.uid}). "
        why += "The object might have been deleted and then recreated"
    elif revision and str(revision) != str(record.revision):
        why = f"the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record "
        why += f"({record.revision}). The object might have been modified"
    if why:
        raise errors.conflict(call.kind.kind, call.kind.group, record.name, why)


def mark_deleted(kind: Kind, obj: Object, options: Object) -> Object:
    """The object as it is after a delete request, before it goes. Changes and returns the given object."""
    metadata = obj["metadata"]
    _set_propagation(metadata, options.get("propagationPolicy"))
    if kind.storage == "customresourcedefinitions.apiextensions.k8s.io":
        _add_finalizer(metadata, CRD_CLEANUP)
    grace = _grace(kind, obj, options)
    before = metadata.get("deletionGracePeriodSeconds")
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = later_text(grace) if grace else now_text()
        if kind.storage not in _OWN_WAY:
            metadata["deletionGracePeriodSeconds"] = grace
            if kind.has_generation and "generation" in metadata:
                metadata["generation"] += 1
    elif before and grace < before:
        metadata["deletionTimestamp"] = later_text(grace) if grace else now_text()
        metadata["deletionGracePeriodSeconds"] = grace
    if kind.storage == "namespaces":
        obj.setdefault("status", {})["phase"] = "Terminating"
    return obj


def _grace(kind: Kind, obj: Object, options: Object) -> int:
    """Only Pods have one, and only while a node runs them: then the node removes them when they have ended."""
    if kind.storage != "pods":
        return 0
    phase = (obj.get("status") or {}).get("phase")
    if not obj["spec"].get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    asked = options.get("gracePeriodSeconds")
    if asked is None and obj["metadata"].get("deletionTimestamp"):
        return int(obj["metadata"].get("deletionGracePeriodSeconds") or 0)
    return int(asked if asked is not None else obj["spec"].get("terminationGracePeriodSeconds", 30))


def _set_propagation(metadata: Object, policy: str | None) -> None:
    if not policy:
        return
    names = [name for name in metadata.get("finalizers") or [] if name not in (FOREGROUND, ORPHAN)]
    if policy == "Foreground":
        names.append(FOREGROUND)
    elif policy == "Orphan":
        names.append(ORPHAN)
    if names:
        metadata["finalizers"] = names
    else:
        metadata.pop("finalizers", None)


def _add_finalizer(metadata: Object, name: str) -> None:
    if name not in (metadata.get("finalizers") or []) and not metadata.get("deletionTimestamp"):
        metadata["finalizers"] = [*(metadata.get("finalizers") or []), name]


async def delete_collection(call: Call) -> ListAnswer:
    """Deletes what the selectors select. Objects that go away meanwhile are no error."""
    options = read_options(call)
    found = list_objects(call)
    for record in found.records:
        single = _single(call, record)
        try:
            await delete_object(single, options)
        except errors.ApiError as error:
            if error.code != 404:
                raise
    return found


def _single(call: Call, record: Record) -> Call:
    target = replace(call.target, name=record.name, namespace=record.namespace)
    return replace(call, target=target)
