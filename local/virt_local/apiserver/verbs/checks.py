"""What every object passes on its way in: unknown fields, types, defaults, and the rules of its kind."""

from __future__ import annotations

from typing import Any

from virt_local.apiserver import errors, schema
from virt_local.apiserver.builtins.defaults import DEFAULTS
from virt_local.apiserver.builtins.rules import RULES, name_rule
from virt_local.apiserver.errors import Cause
from virt_local.apiserver.meta import is_label_value, is_qualified_name
from virt_local.apiserver.schema.validate import bad_value, required
from virt_local.apiserver.verbs.call import Call

Object = dict[str, Any]

_ANNOTATIONS_LIMIT = 256 << 10


def normalise(call: Call, obj: Object, *, validation: str | None = None) -> None:
    """Prunes what the schema does not know (or refuses it), checks types, fills in defaults."""
    mode = validation or call.query.get("fieldValidation") or "Warn"
    if mode not in ("Strict", "Warn", "Ignore"):
        raise errors.bad_request(f"fieldValidation {mode!r} is not Strict, Warn or Ignore")
    unknown = schema.prune(obj, call.kind.node)
    if unknown and mode == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise errors.bad_request(f"strict decoding error: {listed}")
    if unknown and mode == "Warn":
        call.warnings.extend(f'unknown field "{path}"' for path in unknown)
    if call.kind.custom:
        _check_metadata_types(call, obj)
        schema.apply_defaults(obj, call.kind.node)
    else:
        _check_types(call, obj)
        fill_defaults(call, obj)


def _check_types(call: Call, obj: Object) -> None:
    """A built-in object whose fields have wrong types cannot even be read: 400, as from a typed decoder."""
    causes = schema.validate(obj, call.kind.node)
    if causes:
        listed = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
        text = f"{call.kind.kind} in version {call.kind.api_version!r} cannot be handled as a {call.kind.kind}"
        raise errors.bad_request(f"{text}: {listed}")


def _check_metadata_types(call: Call, obj: Object) -> None:
    node = call.kind.node.child("metadata")
    if node is None:
        return
    causes = schema.validate(obj["metadata"], node, "metadata")
    if causes:
        listed = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
        raise errors.bad_request(f"the metadata of the {call.kind.kind} cannot be read: {listed}")


def fill_defaults(call: Call, obj: Object) -> None:
    fill = DEFAULTS.get(call.kind.plural)
    if fill is not None and not call.kind.custom and call.kind.is_stored_form:
        fill(obj)


def check(call: Call, obj: Object, old: Object | None) -> None:
    """Raises a 422 that lists everything that is wrong."""
    causes = _check_metadata(call, obj, old)
    if call.kind.custom:
        causes += schema.validate(obj, call.kind.node)
    else:
        rule = RULES.get(call.kind.plural)
        if rule is not None and call.subresource in ("", "ephemeralcontainers"):
            causes += rule(call.kind.store(dict(obj)), old)
    causes += call.server.crd_rules(call.kind, obj, old)
    if causes:
        raise call.invalid(obj["metadata"].get("name", ""), causes)


def _check_metadata(call: Call, obj: Object, old: Object | None) -> list[Cause]:
    metadata = obj["metadata"]
    causes: list[Cause] = []
    name = metadata.get("name") or ""
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    elif old is None and not name_rule(call.kind.plural)(name):
        causes.append(bad_value("metadata.name", name, "must be a lowercase RFC 1123 name"))
    for key, value in (metadata.get("labels") or {}).items():
        if not is_qualified_name(key):
            causes.append(bad_value("metadata.labels", key, "is not a valid label key"))
        if not is_label_value(value or ""):
            causes.append(bad_value("metadata.labels", value, "is not a valid label value"))
    causes += _check_annotations(metadata.get("annotations") or {})
    causes += _check_owners(metadata.get("ownerReferences") or [])
    return causes + _check_finalizers(metadata, old)


def _check_annotations(annotations: dict[str, str]) -> list[Cause]:
    causes = [
        bad_value("metadata.annotations", key, "is not a valid annotation key")
        for key in annotations
        if not is_qualified_name(key.lower())
    ]
    if sum(len(key) + len(value or "") for key, value in annotations.items()) > _ANNOTATIONS_LIMIT:
        text = f"Too long: must have at most {_ANNOTATIONS_LIMIT} bytes"
        causes.append(Cause("metadata.annotations", text, "FieldValueTooLong"))
    return causes


def _check_owners(owners: list[Object]) -> list[Cause]:
    causes: list[Cause] = []
    for index, owner in enumerate(owners):
        missing = [name for name in ("apiVersion", "kind", "name", "uid") if not owner.get(name)]
        causes += [required(f"metadata.ownerReferences[{index}].{name}") for name in missing]
    if sum(1 for owner in owners if owner.get("controller")) > 1:
        causes.append(bad_value("metadata.ownerReferences", len(owners), "only one reference can be the controller"))
    return causes


def _check_finalizers(metadata: Object, old: Object | None) -> list[Cause]:
    names = metadata.get("finalizers") or []
    causes = [bad_value("metadata.finalizers", n, "is not a qualified name") for n in names if not is_qualified_name(n)]
    if old is not None and old["metadata"].get("deletionTimestamp"):
        added = sorted(set(names) - set(old["metadata"].get("finalizers") or []))
        if added:
            why = f"no new finalizers can be added if the object is being deleted, found new finalizers {added}"
            causes.append(Cause("metadata.finalizers", f"Forbidden: {why}", "FieldValueForbidden"))
    return causes
