"""Update and patch share one path: make the new object from the stored one, check it, store it if nobody was faster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from virt_local.apiserver import errors
from virt_local.apiserver.builtins.strategy import is_removable, keep_unowned
from virt_local.apiserver.patches.ownership import track_update
from virt_local.apiserver.request import dry_run
from virt_local.apiserver.schema.validate import bad_value
from virt_local.apiserver.storage.record import Record
from virt_local.apiserver.storage.store import Mismatch
from virt_local.apiserver.verbs.body import check_identity, check_kind, check_place, read_object
from virt_local.apiserver.verbs.call import Answer, Call
from virt_local.apiserver.verbs.checks import COMPLETED, check, normalise
from virt_local.apiserver.verbs.options import check_write

Object = dict[str, Any]
Change = Callable[[Object], Object]

_ATTEMPTS = 5
_IGNORED = ("metadata", "status", "apiVersion", "kind")


async def update(call: Call) -> Answer:
    check_write("update", call.query)
    body = read_object(call)
    check_identity(call, body)
    conditional = bool(body["metadata"].get("resourceVersion"))
    if call.kind.custom and not conditional:
        call.record()
        cause = errors.Cause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
        raise errors.invalid(call.kind.plural, call.kind.group, call.name, [cause])
    return await modify(call, lambda _: body, retry=not conditional, track=True)


async def modify(call: Call, change: Change, *, retry: bool, track: bool) -> Answer:
    """Applies a change to the stored object. Without a precondition a lost race is run again."""
    for _ in range(_ATTEMPTS if retry else 1):
        record = call.record()
        old = call.kind.view(record.object())
        new = change(call.kind.view(record.object()))
        try:
            return await _replace(call, record, old, new, track)
        except Mismatch as mismatch:
            if mismatch.current is None:
                raise call.not_found() from None
    raise call.conflict()


async def _replace(call: Call, record: Record, old: Object, new: Object, track: bool) -> Answer:
    _read(call, new)
    _check_preconditions(call, old, new)
    keep_unowned(call.kind, new, old, call.subresource)
    is_dry = dry_run(call.query)
    if track:
        track_update(old, new, call.kind.node, manager=call.manager, subresource=call.subresource)
    request = call.admission("UPDATE", new, old, _options(call), is_dry)
    await call.mutate(request)
    if request.object is not new or call.kind.storage in COMPLETED:
        new = _admitted(call, request.object, old)
    _count_generation(call, new, old)
    with call.server.settled(call, new, old) as unsettled:
        check(call, new, old)
        if unsettled:
            raise call.invalid(call.name, unsettled)
        request.object = new
        await call.validate(request)
        return await _store(call, record, old, new, is_dry)


def _read(call: Call, new: Object) -> None:
    """Checks what came in. Of a patch the client sees the document that came out, and why it cannot be read."""
    try:
        check_kind(call, new)
        check_place(call, new)
        normalise(call, new)
    except errors.ApiError as error:
        if error.code != 400 or call.target.verb != "patch" or error.message.startswith("the name"):
            raise
        raise errors.bad_patch(new, error.message) from None


async def _store(call: Call, record: Record, old: Object, new: Object, is_dry: bool) -> Answer:
    kind, store = call.kind, call.server.store
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
    if is_removable(kind, new):
        if not is_dry:
            await store.delete(kind.storage, record.namespace, record.name, expect=record.revision)
            call.server.count_write(kind, "delete")
        return Answer(200, obj=new)
    if new == old:
        return Answer(200, record=record)
    if is_dry:
        return Answer(200, obj=new)
    written = await store.put(kind.storage, kind.store(dict(new)), expect=record.revision)
    call.server.count_write(kind, "update")
    return Answer(200, record=written)


def _check_preconditions(call: Call, old: Object, new: Object) -> None:
    metadata, before = new["metadata"], old["metadata"]
    if metadata.get("uid") and metadata["uid"] != before.get("uid"):
        if call.target.verb == "patch":
            cause = bad_value("metadata.uid", metadata["uid"], "field is immutable")
            raise call.invalid(call.name, [cause, cause])
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {before.get('uid')}"
        raise call.conflict(why)
    if metadata.get("resourceVersion") not in (None, "", "0", before["resourceVersion"]):
        raise call.conflict()


def _options(call: Call) -> Object:
    options: Object = {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}
    for name in ("fieldManager", "fieldValidation"):
        if call.query.get(name):
            options[name] = call.query[name]
    return options | ({"dryRun": ["All"]} if dry_run(call.query) else {})


def _admitted(call: Call, obj: Object | None, old: Object) -> Object:
    if obj is None:
        raise errors.internal("admission removed the object")
    check_identity(call, obj)
    normalise(call, obj, validation="Ignore")
    keep_unowned(call.kind, obj, old, call.subresource)
    return obj


def _count_generation(call: Call, new: Object, old: Object) -> None:
    """The generation counts changes of what is wanted, not of what is observed."""
    if not call.kind.has_generation:
        return
    before = {key: value for key, value in old.items() if key not in _IGNORED}
    after = {key: value for key, value in new.items() if key not in _IGNORED}
    if call.kind.custom and not call.kind.has_status:
        before["status"], after["status"] = old.get("status"), new.get("status")
    if before != after:
        new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
