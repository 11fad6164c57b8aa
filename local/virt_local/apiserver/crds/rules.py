"""What makes a CRD invalid: names, versions, and schemas that are not structural."""

from __future__ import annotations

import re
from typing import Any

from virt_local.apiserver import cel, jsonpath
from virt_local.apiserver.errors import Cause
from virt_local.apiserver.meta import is_dns_label, is_subdomain
from virt_local.apiserver.schema.validate import bad_value, forbidden, required, unsupported

Object = dict[str, Any]

_PROTECTED = (".k8s.io", ".kubernetes.io")
_APPROVAL = "api-approved.kubernetes.io"
_ABOUT_APPROVAL = "https://github.com/kubernetes/enhancements/pull/1111"


def check_crd(crd: Object, old: Object | None) -> list[Cause]:
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    causes = _check_names(crd, spec, names)
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        causes.append(unsupported("spec.scope", spec.get("scope"), ["Cluster", "Namespaced"]))
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        causes.append(forbidden("spec.conversion.strategy", "this server converts between versions only by None"))
    if spec.get("preserveUnknownFields"):
        causes.append(forbidden("spec.preserveUnknownFields", "must be false in apiextensions.k8s.io/v1"))
    causes += _check_approval(crd, spec)
    causes += _check_versions(spec.get("versions") or [])
    if old is not None:
        causes += _check_unchanged(spec, old.get("spec") or {})
    return causes


def _check_names(crd: Object, spec: Object, names: Object) -> list[Cause]:
    causes: list[Cause] = []
    if not is_subdomain(spec.get("group") or ""):
        causes.append(bad_value("spec.group", spec.get("group"), "must be a domain"))
    wrong = [name for name in ("plural", "singular") if not is_dns_label(names.get(name) or "")]
    causes += [bad_value(f"spec.names.{n}", names.get(n), "must be a lowercase RFC 1123 label") for n in wrong]
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", names.get("kind") or ""):
        causes.append(bad_value("spec.names.kind", names.get("kind"), "must be an alphanumeric name"))
    expected = f"{names.get('plural')}.{spec.get('group')}"
    if crd["metadata"].get("name") != expected:
        why = 'must be spec.names.plural+"."+spec.group'
        causes.append(bad_value("metadata.name", crd["metadata"].get("name"), why))
    return causes


def _check_approval(crd: Object, spec: Object) -> list[Cause]:
    """Groups of the Kubernetes project are not for everybody."""
    group = spec.get("group") or ""
    if not group.endswith(_PROTECTED) or (crd["metadata"].get("annotations") or {}).get(_APPROVAL):
        return []
    why = f'protected groups must have approval annotation "{_APPROVAL}", see {_ABOUT_APPROVAL}'
    return [required(f"metadata.annotations[{_APPROVAL}]", why)]


def _check_versions(versions: list[Object]) -> list[Cause]:
    causes: list[Cause] = []
    if sum(1 for version in versions if version.get("storage")) != 1:
        shown = [version.get("name") for version in versions]
        causes.append(bad_value("spec.versions", shown, "must have exactly one version marked as storage version"))
        causes.append(bad_value("status.storedVersions", [], "must have at least one stored version"))
    # One version's schema stands for all in the real server, and is named so.
    alone = "spec.validation" if len(versions) == 1 else ""
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        if not is_dns_label(version.get("name") or ""):
            causes.append(bad_value(f"{path}.name", version.get("name"), "must be a lowercase RFC 1123 label"))
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not isinstance(schema, dict):
            causes.append(required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
            continue
        causes += _check_schema(schema, f"{alone or path + '.schema'}.openAPIV3Schema", root=True)
        causes += _check_columns(version.get("additionalPrinterColumns") or [], path)
    return causes


def _check_columns(columns: list[Object], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, column in enumerate(columns):
        where = f"{path}.additionalPrinterColumns[{index}].jsonPath"
        try:
            jsonpath.compile_path(column.get("jsonPath") or "")
        except jsonpath.BadPath as error:
            causes.append(bad_value(where, column.get("jsonPath"), str(error)))
    return causes


def _check_schema(schema: Object, path: str, *, root: bool = False) -> list[Cause]:
    """Structural: every place has a type, unless it is declared to hold anything."""
    causes: list[Cause] = []
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if not schema.get("type") and not free:
        causes.append(required(f"{path}.type", "must not be empty for specified object fields"))
    if root and schema.get("type") not in (None, "object"):
        causes.append(bad_value(f"{path}.type", schema["type"], "must be object at the root"))
    if schema.get("$ref"):
        causes.append(forbidden(f"{path}.$ref", "$ref is not supported"))
    if schema.get("pattern"):
        try:
            re.compile(schema["pattern"])
        except re.error as error:
            causes.append(bad_value(f"{path}.pattern", schema["pattern"], f"is not a pattern: {error}"))
    causes += _check_rules(schema.get("x-kubernetes-validations") or [], path)
    for name, child in (schema.get("properties") or {}).items():
        causes += _check_schema(child, f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            causes += _check_schema(schema[name], f"{path}.{name}")
    return causes


def _check_rules(rules: list[Object], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, rule in enumerate(rules):
        try:
            cel.compile_expression(rule.get("rule") or "")
        except cel.BadExpression as error:
            where = f"{path}.x-kubernetes-validations[{index}].rule"
            causes.append(bad_value(where, rule.get("rule"), str(error)))
    return causes


def _check_unchanged(spec: Object, old: Object) -> list[Cause]:
    names, before = spec.get("names") or {}, old.get("names") or {}
    fixed = [(f"spec.{name}", spec.get(name), old.get(name)) for name in ("group", "scope")]
    fixed += [(f"spec.names.{name}", names.get(name), before.get(name)) for name in ("plural", "kind")]
    return [bad_value(path, value, "field is immutable") for path, value, was in fixed if value != was]
