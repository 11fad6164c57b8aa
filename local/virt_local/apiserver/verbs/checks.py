"""What every object passes on its way in: unknown fields, types, defaults, and the rules of its kind."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec

from virt_local.apiserver import errors, schema
from virt_local.apiserver.builtins.defaults import DEFAULTS
from virt_local.apiserver.builtins.resize_rules import check_resize
from virt_local.apiserver.builtins.rules import RULES, name_rule
from virt_local.apiserver.errors import Cause
from virt_local.apiserver.meta import is_label_value, is_qualified_name
from virt_local.apiserver.schema.validate import bad_value, forbidden, required
from virt_local.apiserver.verbs.body import media_type
from virt_local.apiserver.verbs.call import Call

Object = dict[str, Any]

#: Kinds that admission completes in place; others are as they were unless a webhook made a new object.
COMPLETED = ("pods",)
APPLY_PATCH = "application/apply-patch+yaml"
_ANNOTATIONS_LIMIT = 256 << 10
_FINALIZERS = "metadata.finalizers"


def normalise(call: Call, obj: Object, *, validation: str | None = None) -> None:
    """Prunes what the schema does not know (or refuses it), checks types, fills in defaults."""
    mode = validation or call.query.get("fieldValidation") or "Warn"
    unknown = [*call.strict_errors, *_unknown_fields(call, obj)]
    call.strict_errors = []
    if unknown and mode == "Strict":
        raise _strict_error(call, obj, ", ".join(unknown))
    if unknown and mode == "Warn":
        call.warnings.extend(unknown)
    if call.kind.custom:
        _check_metadata_types(call, obj)
        schema.drop_nulls(obj, call.kind.node)
        schema.apply_defaults(obj, call.kind.node)
        schema.compact(obj["metadata"], schema.metadata_node())
    else:
        _check_types(call, obj)
        schema.compact(obj, call.kind.node)
        fill_defaults(call, obj)


def _unknown_fields(call: Call, obj: Object) -> list[str]:
    """In the order in which the real server meets them: sorted in custom objects, as written in built-in ones."""
    found = schema.prune(obj, call.kind.node)
    return [f'unknown field "{path}"' for path in (sorted(found) if call.kind.custom else found)]


def _strict_error(call: Call, obj: Object, listed: str) -> errors.ApiError:
    kind = call.kind
    if call.target.verb == "patch" and media_type(call.content_type) != APPLY_PATCH:
        shown = json.dumps(msgspec.json.encode(obj).decode())
        cause = Cause("patch", f"Invalid value: {shown}: strict decoding error: {listed}")
        return errors.invalid("", "", "", [cause])
    if call.target.verb == "patch":
        text = (
            f"failed to create typed patch object ({call.namespace}/{call.name}; {kind.api_version}, Kind={kind.kind})"
        )
        return errors.bad_request(f"{text}: {listed}")
    text = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}'
    return errors.bad_request(f"{text}: strict decoding error: {listed}")


def _check_types(call: Call, obj: Object) -> None:
    """A built-in object whose fields have wrong types cannot even be read: 400, as from a typed decoder."""
    causes = schema.validate(obj, call.kind.node)
    if causes:
        listed = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
        text = f'{call.kind.kind} in version "{call.kind.version}" cannot be handled as a {call.kind.kind}'
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
    if fill is None or call.kind.custom:
        return
    if call.kind.is_stored_form:
        fill(obj)
        return
    stored = call.kind.store(dict(obj))
    fill(stored)
    obj.clear()
    obj.update(call.kind.view(stored))


def check(call: Call, obj: Object, old: Object | None) -> None:
    """Raises a 422 that lists everything that is wrong."""
    causes = _check_metadata(call, obj, old)
    if call.kind.custom:
        causes += _check_custom(call, obj, old)
    else:
        rule = RULES.get(call.kind.plural)
        whole = call.subresource in ("", "ephemeralcontainers") or call.kind.plural == "namespaces"
        if rule is not None and whole:
            causes += rule(call.kind.store(dict(obj)), old)
        elif call.subresource == "resize" and old is not None:
            causes += check_resize(obj, old)
    causes += call.server.crd_rules(call.kind, obj, old)
    if causes:
        raise call.invalid(obj["metadata"].get("name", ""), causes)


def _check_custom(call: Call, obj: Object, old: Object | None) -> list[Cause]:
    """The types first: rules are only asked about values that have the right ones."""
    causes = schema.validate(obj, call.kind.node)
    if call.subresource == "status":
        # The real server looks at the status alone, and names fields from there.
        causes = [replace(cause, message=cause.message.replace(": status.", ": ")) for cause in causes]
    return causes or schema.check_rules(obj, old, call.kind.node)


def _check_metadata(call: Call, obj: Object, old: Object | None) -> list[Cause]:
    metadata = obj["metadata"]
    causes: list[Cause] = []
    name = metadata.get("name") or ""
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    elif old is None and not name_rule(call.kind.plural)(name):
        causes.append(bad_value("metadata.name", name, "must be a lowercase RFC 1123 name"))
    parts = _check_labels(metadata.get("labels") or {})
    parts += _check_annotations(metadata.get("annotations") or {})
    parts += _check_owners(metadata.get("ownerReferences") or [])
    # An update is looked at four times in the real server, and each time its complaints are listed.
    causes += parts if old is None else parts * 4
    return causes + _check_finalizers(metadata, old)


def _check_labels(labels: dict[str, str]) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in labels.items():
        if not is_qualified_name(key):
            causes.append(bad_value("metadata.labels", key, "is not a valid label key"))
        if not is_label_value(value or ""):
            causes.append(bad_value("metadata.labels", value, "is not a valid label value"))
    return causes


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
    for owner in owners:
        for name in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(name):
                word = {"apiVersion": "version"}.get(name, name)
                causes.append(bad_value(f"metadata.ownerReferences.{name}", "", f"{word} must not be empty"))
    leaders = [f"{owner.get('kind')}/{owner.get('name')}" for owner in owners if owner.get("controller")]
    if len(leaders) > 1:
        why = f'Only one reference can have Controller set to true. Found "true" in references for {leaders}'
        causes.append(bad_value("metadata.ownerReferences", len(owners), why))
    return causes


def _check_finalizers(metadata: Object, old: Object | None) -> list[Cause]:
    names = metadata.get("finalizers") or []
    causes: list[Cause] = []
    for index, name in enumerate(names):
        if not is_qualified_name(name):
            causes += [
                bad_value(place, name, "is not a qualified name") for place in (_FINALIZERS, f"{_FINALIZERS}[{index}]")
            ]
    if old is not None and old["metadata"].get("deletionTimestamp"):
        added = sorted(set(names) - set(old["metadata"].get("finalizers") or []))
        if added:
            shown = ", ".join(f'"{name}"' for name in added)
            why = "no new finalizers can be added if the object is being deleted, found new finalizers "
            # Said once by the store and once by the kind, as in the real server.
            causes += [forbidden(_FINALIZERS, f"{why}[]string{{{shown}}}")] * 2
    return causes
