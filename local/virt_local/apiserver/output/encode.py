"""Answers as bytes. Stored objects are already encoded, so that plain lists are only joined together."""

from __future__ import annotations

from typing import Any

import msgspec

from virt_local.apiserver import errors
from virt_local.apiserver.kinds import Kind
from virt_local.apiserver.output.negotiate import JSON, PROTOBUF, YAML, Form, Wanted
from virt_local.apiserver.output.table import partial, table
from virt_local.apiserver.schema import protobuf_write
from virt_local.apiserver.storage.record import Record
from virt_local.apiserver.verbs.call import Answer, ListAnswer

Object = dict[str, Any]
encode = msgspec.json.Encoder().encode


def record_bytes(kind: Kind, record: Record) -> bytes:
    """A record in a kind's version."""
    return record.raw if kind.is_stored_form else encode(kind.view(record.object()))


def _item_bytes(kind: Kind, record: Record) -> bytes:
    """A record in a list: of a built-in kind each item is known to be of the list's."""
    raw = record_bytes(kind, record)
    if kind.custom:
        return raw
    start = f'{{"kind":"{kind.kind}","apiVersion":"{kind.api_version}",'.encode()
    if raw.startswith(start):
        return b"{" + raw[len(start) :]
    obj = msgspec.json.decode(raw)
    return encode({key: value for key, value in obj.items() if key not in ("kind", "apiVersion")})


def encode_answer(kind: Kind, answer: Answer, wanted: Wanted) -> bytes:
    if answer.obj is not None and answer.obj.get("kind") == "Status":
        return encode(answer.obj)
    wanted.check_single(kind.kind)
    if wanted.form is Form.TABLE and _is_of_kind(kind, answer):
        obj = _stored(kind, answer)
        revision = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return encode(table(kind, [obj], revision, wanted))
    if wanted.form is Form.PARTIAL:
        return encode(partial(answer.object(kind), wanted.version))
    if answer.record is not None:
        return record_bytes(kind, answer.record)
    return encode(answer.obj)


def _is_of_kind(kind: Kind, answer: Answer) -> bool:
    return answer.record is not None or (answer.obj or {}).get("kind") == kind.kind


def _stored(kind: Kind, answer: Answer) -> Object:
    return answer.record.object() if answer.record is not None else kind.store(dict(answer.obj or {}))


def encode_list(kind: Kind, answer: ListAnswer, wanted: Wanted) -> bytes:
    name = kind.list_kind or f"{kind.kind}List"
    wanted.check_list(name)
    metadata: Object = {"resourceVersion": str(answer.revision)}
    if answer.next_token:
        metadata["continue"] = answer.next_token
    if answer.remaining:
        metadata["remainingItemCount"] = answer.remaining
    if wanted.form is Form.TABLE:
        return encode(table(kind, [record.object() for record in answer.records], metadata, wanted))
    if wanted.form is Form.PARTIAL_LIST:
        items = [partial(record.object(), wanted.version) for record in answer.records]
        version = f"meta.k8s.io/{wanted.version}"
        return encode({"kind": wanted.form.value, "apiVersion": version, "metadata": metadata, "items": items})
    if kind.custom:
        metadata.setdefault("continue", "")
    head = {"kind": name, "apiVersion": kind.api_version, "metadata": metadata}
    items_bytes = b",".join(_item_bytes(kind, record) for record in answer.records)
    return encode(head)[:-1] + b',"items":[' + items_bytes + b"]}"


def check_encoding(kind: Kind, verb: str, wanted: Wanted) -> None:
    """Custom kinds have no protobuf form, and watches are written as JSON lines only."""
    if wanted.media != JSON and verb == "watch":
        raise errors.not_acceptable(bare=False)
    if wanted.media == PROTOBUF and (
        kind.custom or not protobuf_write.is_known({"apiVersion": kind.api_version, "kind": kind.kind})
    ):
        raise errors.not_acceptable(bare=False)


def reencoded(body: bytes, media: str) -> bytes:
    """An answer, made as JSON, in the encoding that the client asked for."""
    if media == PROTOBUF:
        return protobuf_write.encode(msgspec.json.decode(body))
    if media == YAML:
        import yaml

        return yaml.safe_dump(msgspec.json.decode(body), sort_keys=True, allow_unicode=True).encode()
    return body


def encode_event(type_: str, body: bytes) -> bytes:
    return b'{"type":"' + type_.encode() + b'","object":' + body + b"}\n"


class EventEncoder:
    """The events of one watch in the form that its client accepts. A table's header is sent once."""

    def __init__(self, kind: Kind, wanted: Wanted) -> None:
        self._kind, self._form, self._wanted = kind, wanted.form, wanted
        self._header = True

    def __call__(self, type_: str, record: Record) -> bytes:
        if self._form is Form.PLAIN:
            return encode_event(type_, record_bytes(self._kind, record))
        if self._form is Form.TABLE:
            return encode_event(type_, self._row(record))
        return encode_event(type_, encode(partial(self._kind.view(record.object()), self._wanted.version)))

    def _row(self, record: Record) -> bytes:
        metadata = {"resourceVersion": str(record.revision)}
        body = table(self._kind, [record.object()], metadata, self._wanted, header=self._header)
        self._header = False
        return encode(body)

    def bookmark(self, revision: int, *, initial_end: bool) -> bytes:
        """A bookmark is an object with a revision and nothing else."""
        metadata: Object = {"resourceVersion": str(revision)}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        shell: Object = {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata}
        if self._form is Form.TABLE:
            shell = table(self._kind, [shell], {"resourceVersion": str(revision)}, self._wanted, header=self._header)
            self._header = False
        elif self._form is not Form.PLAIN:
            shell = partial(shell, self._wanted.version)
        return encode_event("BOOKMARK", encode(shell))
