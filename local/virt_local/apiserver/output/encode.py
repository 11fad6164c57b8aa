"""Answers as bytes. Stored objects are already encoded, so that plain lists are only joined together."""

from __future__ import annotations

from typing import Any

import msgspec

from virt_local.apiserver.kinds import Kind
from virt_local.apiserver.output.negotiate import Form
from virt_local.apiserver.output.table import partial, table
from virt_local.apiserver.storage.record import Record
from virt_local.apiserver.verbs.call import Answer, ListAnswer

Object = dict[str, Any]
encode = msgspec.json.Encoder().encode


def record_bytes(kind: Kind, record: Record) -> bytes:
    """A record in a kind's version."""
    return record.raw if kind.is_stored_form else encode(kind.view(record.object()))


def encode_answer(kind: Kind, answer: Answer, form: Form, include: str) -> bytes:
    if answer.obj is not None and answer.obj.get("kind") == "Status":
        return encode(answer.obj)
    if form is Form.TABLE and _is_of_kind(kind, answer):
        obj = _stored(kind, answer)
        revision = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return encode(table(kind, [obj], revision, include))
    if form in (Form.PARTIAL, Form.PARTIAL_LIST):
        return encode(partial(answer.object(kind)))
    if answer.record is not None:
        return record_bytes(kind, answer.record)
    return encode(answer.obj)


def _is_of_kind(kind: Kind, answer: Answer) -> bool:
    return answer.record is not None or (answer.obj or {}).get("kind") == kind.kind


def _stored(kind: Kind, answer: Answer) -> Object:
    return answer.record.object() if answer.record is not None else kind.store(dict(answer.obj or {}))


def encode_list(kind: Kind, answer: ListAnswer, form: Form, include: str) -> bytes:
    metadata: Object = {"resourceVersion": str(answer.revision)}
    if answer.next_token:
        metadata |= {"continue": answer.next_token, "remainingItemCount": answer.remaining}
    if form is Form.TABLE:
        return encode(table(kind, [record.object() for record in answer.records], metadata, include))
    if form in (Form.PARTIAL, Form.PARTIAL_LIST):
        items = [partial(record.object()) for record in answer.records]
        kind_name, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        return encode({"kind": kind_name, "apiVersion": version, "metadata": metadata, "items": items})
    head = {"kind": kind.list_kind or f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata}
    items_bytes = b",".join(record_bytes(kind, record) for record in answer.records)
    return encode(head)[:-1] + b',"items":[' + items_bytes + b"]}"


def encode_event(type_: str, body: bytes) -> bytes:
    return b'{"type":"' + type_.encode() + b'","object":' + body + b"}\n"


class EventEncoder:
    """The events of one watch in the form that its client accepts. A table's header is sent once."""

    def __init__(self, kind: Kind, form: Form, include: str) -> None:
        self._kind, self._form, self._include = kind, form, include
        self._header = True

    def __call__(self, type_: str, record: Record) -> bytes:
        if self._form is Form.PLAIN:
            return encode_event(type_, record_bytes(self._kind, record))
        if self._form is Form.TABLE:
            return encode_event(type_, self._row(record))
        return encode_event(type_, encode(partial(self._kind.view(record.object()))))

    def _row(self, record: Record) -> bytes:
        metadata = {"resourceVersion": str(record.revision)}
        body = table(self._kind, [record.object()], metadata, self._include, header=self._header)
        self._header = False
        return encode(body)

    def bookmark(self, revision: int, *, initial_end: bool) -> bytes:
        """A bookmark is an object with a revision and nothing else."""
        metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        if self._form is Form.TABLE:
            shell: Object = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
            shell |= {"columnDefinitions": None, "rows": None}
        elif self._form is Form.PLAIN:
            shell = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata}
        else:
            shell = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
        return encode_event("BOOKMARK", encode(shell))
