"""Get and list."""

from __future__ import annotations

from virt_local.apiserver import errors
from virt_local.apiserver.request import integer, revision
from virt_local.apiserver.selectors import RecordTest, parse_fields, parse_labels, single_name
from virt_local.apiserver.snapshots import Place, token
from virt_local.apiserver.storage.record import Record
from virt_local.apiserver.verbs.call import Answer, Call, ListAnswer
from virt_local.apiserver.verbs.options import EXACT, check_list


async def get(call: Call) -> Answer:
    """All reads are of the newest state: a revision is only looked at for whether it can be served at all."""
    try:
        asked = revision(call.query)
    except ValueError as error:
        raise errors.storage(str(error)) from None
    _refuse_future(asked, call.server.store.revision)
    return Answer(200, record=call.record())


def list_objects(call: Call) -> ListAnswer:
    check_list(call.query)
    limit = max(integer(call.query, "limit") or 0, 0)
    integer(call.query, "timeoutSeconds")
    if call.query.get("continue"):
        return _continue(call, call.server.snapshots.resume(call.query["continue"]), limit)
    now = call.server.store.revision
    _check_revision(call, now)
    return _page(call, select(call), now, limit)


def _continue(call: Call, place: Place, limit: int) -> ListAnswer:
    if place.records is not None:
        return _page(call, place.records, place.revision, limit, place)
    rest = [record for record in select(call) if (record.namespace, record.name) > place.last]
    return _page(call, rest, call.server.store.revision, limit)


def _page(call: Call, records: list[Record], moment: int, limit: int, place: Place | None = None) -> ListAnswer:
    start, name = (place.offset, place.name) if place else (0, "")
    end = start + limit if limit else len(records)
    if end >= len(records):
        return ListAnswer(records[start:], moment)
    name = name or call.server.snapshots.keep(records, moment)
    # How many are left is only said of whole lists: with a selector the real store does not know it.
    selected = call.query.get("labelSelector") or call.query.get("fieldSelector")
    left = 0 if selected else len(records) - end
    return ListAnswer(records[start:end], moment, token(name, end, records[end - 1]), left)


def _check_revision(call: Call, current: int) -> None:
    """All reads are of the newest state, so only a revision from the future or an exact old one cannot be served."""
    try:
        asked = revision(call.query)
    except ValueError as error:
        raise errors.bad_request(f"invalid resource version: {error}") from None
    _refuse_future(asked, current)
    if call.query.get("resourceVersionMatch") == EXACT and asked != current:
        raise errors.gone(f"The resourceVersion for the provided list is too old: {asked}")


def _refuse_future(asked: int | None, current: int) -> None:
    if asked is not None and asked > current:
        cause = errors.Cause("", "Too large resource version", "ResourceVersionTooLarge")
        text = f"Timeout: Too large resource version: {asked}, current: {current}"
        raise errors.ApiError(504, "Timeout", text, causes=[cause], retry_after_s=1)


def select(call: Call) -> list[Record]:
    """The records that the request's place and selectors choose, in order."""
    store, kind, fields = call.server.store, call.kind, call.query.get("fieldSelector", "")
    test = record_test(call)
    name = call.name or single_name(fields)
    if name and (call.namespace or not kind.namespaced):
        record = store.get(kind.storage, call.namespace, name)
        return [record] if record is not None and test(record) else []
    return [record for record in store.list(kind.storage, call.namespace) if test(record)]


def record_test(call: Call) -> RecordTest:
    """The selectors of a request as one test. The namespace is not part of it."""
    labels = parse_labels(call.query.get("labelSelector", ""))
    fields = parse_fields(call.query.get("fieldSelector", ""), call.kind)
    name = call.name
    return lambda record: (not name or record.name == name) and labels(record.labels) and fields(record)
