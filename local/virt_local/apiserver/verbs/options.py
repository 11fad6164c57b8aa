"""The parameters of a request, checked before anything else: a 422 about ListOptions, CreateOptions and the like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from virt_local.apiserver import errors
from virt_local.apiserver.errors import Cause
from virt_local.apiserver.request import is_true
from virt_local.apiserver.schema.validate import bad_value, forbidden, required, unsupported

Object = dict[str, Any]
Query = Mapping[str, str]

EXACT, NOT_OLDER = "Exact", "NotOlderThan"
_GROUP = "meta.k8s.io"
_KINDS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_VALIDATIONS = ["", "Ignore", "Strict", "Warn"]
_POLICIES = ["Foreground", "Background", "Orphan"]
_MANAGER_LIMIT = 128


def _refuse(kind: str, causes: Sequence[Cause]) -> None:
    if causes:
        raise errors.invalid(kind, _GROUP, "", causes)


def check_write(verb: str, query: Query, *, apply: bool = False) -> None:
    """The options of a create, an update or a patch."""
    causes = _check_apply(query, apply=apply) if verb == "patch" else []
    manager = query.get("fieldManager", "")
    if len(manager.encode()) > _MANAGER_LIMIT:
        text = f"Too long: may not be more than {_MANAGER_LIMIT} bytes"
        causes.append(Cause("fieldManager", text, "FieldValueTooLong"))
    elif not manager.isprintable():
        causes.append(bad_value("fieldManager", manager, "should only contain printable characters"))
    causes += _check_dry_run([query["dryRun"]] if query.get("dryRun") else [])
    if query.get("fieldValidation", "") not in _VALIDATIONS:
        causes.append(unsupported("fieldValidation", query["fieldValidation"], _VALIDATIONS))
    _refuse(_KINDS[verb], causes)


def _check_apply(query: Query, *, apply: bool) -> list[Cause]:
    if apply and not query.get("fieldManager"):
        return [required("fieldManager", "is required for apply patch")]
    if not apply and "force" in query:
        return [forbidden("force", "may not be specified for non-apply patch")]
    return []


def _check_dry_run(asked: list[Any]) -> list[Cause]:
    return [] if set(map(str, asked)) <= {"All"} else [unsupported("dryRun", asked, ["All"])]


def check_delete(options: Object) -> None:
    causes: list[Cause] = []
    policy, orphan = options.get("propagationPolicy"), options.get("orphanDependents")
    if policy is not None and orphan is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        causes.append(bad_value("propagationPolicy", policy, why))
    if policy not in (None, *_POLICIES):
        causes.append(unsupported("propagationPolicy", policy, [*_POLICIES, "nil"]))
    causes += _check_dry_run(options.get("dryRun") or [])
    _refuse("DeleteOptions", causes)


def check_list(query: Query) -> None:
    """The options of a list or a watch."""
    match, initial = query.get("resourceVersionMatch", ""), "sendInitialEvents" in query
    if is_true(query.get("watch")):
        causes = _check_watch(match, initial, "continue" in query)
    else:
        causes = _check_match(match, query)
        if initial:
            causes.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    _refuse("ListOptions", causes)


def _check_match(match: str, query: Query) -> list[Cause]:
    if not match:
        return []
    causes: list[Cause] = []
    place = "resourceVersionMatch"
    if not query.get("resourceVersion"):
        causes.append(forbidden(place, f"{place} is forbidden unless resourceVersion is provided"))
    if query.get("continue"):
        causes.append(forbidden(place, f"{place} is forbidden when continue is provided"))
    if match not in (EXACT, NOT_OLDER):
        causes.append(unsupported(place, match, [EXACT, NOT_OLDER, ""]))
    if match == EXACT and query.get("resourceVersion") == "0":
        causes.append(forbidden(place, f'{place} "exact" is forbidden for resourceVersion "0"'))
    return causes


def _check_watch(match: str, initial: bool, continued: bool) -> list[Cause]:
    causes: list[Cause] = []
    place = "resourceVersionMatch"
    if initial and match != NOT_OLDER:
        causes.append(forbidden(place, f"sendInitialEvents requires setting {place} to {NOT_OLDER}"))
    if match and not initial:
        causes.append(forbidden(place, f"{place} is forbidden for watch unless sendInitialEvents is provided"))
    if match and match != NOT_OLDER:
        causes.append(unsupported(place, match, [NOT_OLDER]))
    if match and continued:
        causes.append(forbidden(place, f"{place} is forbidden when continue is provided"))
    return causes
