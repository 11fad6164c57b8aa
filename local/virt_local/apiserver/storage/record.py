"""One stored object: its encoded bytes plus the few values that lists and watches select by.

Objects stay encoded in memory. A reader that only passes them on never decodes them, a writer decodes a fresh copy that
it may change, and the garbage collector has nothing to walk through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

Object = dict[str, Any]
Key = tuple[str, str, str]

# Booleans that compare as "false" when they are not set.
_FLAGS = frozenset({"spec.unschedulable", "spec.hostNetwork"})

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


class Record(msgspec.Struct, frozen=True, gc=False):
    """`resource` is `pods` or `leases.coordination.k8s.io`; `fields` holds what field selectors may ask for."""

    resource: str
    namespace: str
    name: str
    uid: str
    revision: int
    labels: dict[str, str]
    fields: dict[str, str]
    raw: bytes

    @property
    def key(self) -> Key:
        return self.resource, self.namespace, self.name

    def object(self) -> Object:
        """A fresh copy of the object, the caller's to change."""
        obj: Object = _decoder.decode(self.raw)
        return obj


FieldPaths = Mapping[str, Sequence[str]]


def make_record(resource: str, obj: Object, revision: int, field_paths: FieldPaths) -> Record:
    """Stamps the revision into the object and encodes it."""
    metadata = obj["metadata"]
    metadata["resourceVersion"] = str(revision)
    # The kind comes first, as in every answer of Kubernetes, and so that lists can leave it out by cutting.
    first = {name: obj[name] for name in ("kind", "apiVersion", "metadata") if name in obj}
    return _record(resource, obj, revision, _encoder.encode(first | obj), field_paths)


def load_record(resource: str, raw: bytes, revision: int, field_paths: FieldPaths) -> Record:
    return _record(resource, _decoder.decode(raw), revision, raw, field_paths)


def _record(resource: str, obj: Object, revision: int, raw: bytes, field_paths: FieldPaths) -> Record:
    metadata = obj["metadata"]
    return Record(
        resource=resource,
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        revision=revision,
        labels=metadata.get("labels") or {},
        fields={path: field_value(obj, path) for path in field_paths.get(resource, ())},
        raw=raw,
    )


def field_value(obj: Object, path: str) -> str:
    """What a field selector compares with: the value at a dotted path as text, empty when it is not there."""
    value: Any = obj
    for part in path.split("."):
        if not isinstance(value, dict):
            return ""
        value = value.get(part)
    if value is None:
        return "false" if path in _FLAGS else ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
