"""Get and list."""

from __future__ import annotations

from virt_local.apiserver import errors
from virt_local.apiserver.request import integer
from virt_local.apiserver.selectors import RecordTest, parse_fields, parse_labels, single_name
from virt_local.apiserver.snapshots import token
from virt_local.apiserver.storage.record import Record
from virt_local.apiserver.verbs.call import Answer, Call, ListAnswer


async def get(call: Call) -> Answer:
    return Answer(200, record=call.record())


def list_objects(call: Call) -> ListAnswer:
    limit = integer(call.query, "limit") or 0
    if call.query.get("continue"):
        name, start, revision, records = call.server.snapshots.resume(call.query["continue"])
        return _page(call, records, revision, limit, (name, start))
    revision = call.server.store.revision
    _check_revision(call, revision)
    return _page(call, select(call), revision, limit, None)


def _page(call: Call, records: list[Record], revision: int, limit: int, place: tuple[str, int] | None) -> ListAnswer:
    start = place[1] if place else 0
    end = start + limit if limit else len(records)
    if end >= len(records):
        return ListAnswer(records[start:], revision)
    name = place[0] if place else call.server.snapshots.keep(records, revision)
    return ListAnswer(records[start:end], revision, token(name, end), len(records) - end)


def _check_revision(call: Call, current: int) -> None:
    """All reads are of the newest state, so only a revision from the future or an exact old one cannot be served."""
    asked = integer(call.query, "resourceVersion")
    if asked is None or asked == 0:
        return
    if asked > current:
        cause = errors.Cause("", "Too large resource version", "ResourceVersionTooLarge")
        text = f"Too large resource version: {asked}, current: {current}"
        raise errors.ApiError(504, "Timeout", text, causes=[cause], retry_after_s=1)
    if call.query.get("resourceVersionMatch") == "Exact" and asked != current:
        raise errors.gone(f"the resourceVersion {asked} for the provided list is too old")


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
