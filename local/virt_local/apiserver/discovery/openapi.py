"""OpenAPI v3, one document for each group and version: what `kubectl explain`, `apply` and `diff` read."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from virt_local.apiserver.catalog import Catalog
from virt_local.apiserver.kinds import Kind
from virt_local.apiserver.schema.builtin import REF, openapi_closure
from virt_local.apiserver.verbs.patch import BUILTIN_TYPES, CUSTOM_TYPES

Object = dict[str, Any]

_GVK = "x-kubernetes-group-version-kind"
_INFO = {"title": "Virtpod virt-local", "version": "v1"}
# An OpenAPI v2 document without paths and definitions: version, title and version of the API, no paths.
EMPTY_SWAGGER = b"\x0a\x032.0\x12\x0d\x0a\x07virtpod\x12\x02v1\x42\x00"
SWAGGER_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_WRITE_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
_LIST_PARAMETERS = (
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "timeoutSeconds",
    "watch",
    "allowWatchBookmarks",
    "sendInitialEvents",
)


class OpenApi:
    """Documents are made when they are asked for, and again when the served kinds have changed."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._made: dict[str, bytes] = {}
        self._revision = -1

    def index(self) -> Object:
        paths = {}
        for path in self._paths():
            digest = hashlib.sha256(self.document(path) or b"").hexdigest().upper()
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return {"paths": paths}

    def _paths(self) -> list[str]:
        found = {_path(kind.group, kind.version) for kind in self._catalog}
        return sorted(found)

    def document(self, path: str) -> bytes | None:
        """The document of `api/v1` or `apis/GROUP/VERSION`."""
        if self._revision != self._catalog.revision:
            self._made.clear()
            self._revision = self._catalog.revision
        if path not in self._made:
            kinds = [kind for kind in self._catalog if _path(kind.group, kind.version) == path]
            if not kinds:
                return None
            self._made[path] = msgspec.json.encode(_document(kinds))
        return self._made[path]

    def swagger(self, paths: Object) -> Object:
        """OpenAPI v2 holds the schemas, and of the paths only those of other servers: clients of these years use v3."""
        kinds = list(self._catalog)
        text = msgspec.json.encode(_schemas(kinds)).replace(REF.encode(), b"#/definitions/")
        return {"swagger": "2.0", "info": _INFO, "paths": paths, "definitions": msgspec.json.decode(text)}


def _path(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def _document(kinds: list[Kind]) -> Object:
    paths: Object = {}
    for kind in kinds:
        paths |= _paths_of(kind)
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": _schemas(kinds)}}


def schema_name(kind: Kind) -> str:
    """Custom kinds are named by their reversed group, as is the custom."""
    if kind.type_name:
        return kind.type_name
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def _schemas(kinds: list[Kind]) -> Object:
    roots = {kind.type_name for kind in kinds if kind.type_name} | {"V1ObjectMeta", "V1DeleteOptions", "V1Status"}
    if any(kind.scale for kind in kinds):
        roots.add("V1Scale")
    schemas: Object = openapi_closure(roots)
    for kind in kinds:
        if kind.custom:
            schemas[schema_name(kind)] = _custom_schema(kind)
        schemas[schema_name(kind)].setdefault(_GVK, []).append(_gvk(kind))
    return schemas


def _custom_schema(kind: Kind) -> Object:
    schema: Object = _published(kind.schema)
    own = dict(schema.get("properties") or {})
    own["apiVersion"] = {"type": "string", "description": "The version of the API that this object is written in."}
    own["kind"] = {"type": "string", "description": "The kind of this object."}
    own["metadata"] = {"allOf": [{"$ref": REF + "V1ObjectMeta"}], "description": "Name, labels, owners and the like."}
    return schema | {"type": "object", "properties": own}


def _published(schema: Any) -> Any:
    """A schema as clients know it: that a number or a text may stand somewhere is also said in plain OpenAPI."""
    if isinstance(schema, list):
        return [_published(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    shown = {key: _published(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string") is True and not schema.get("anyOf") and not schema.get("allOf"):
        shown["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    return shown


def _gvk(kind: Kind) -> Object:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _paths_of(kind: Kind) -> Object:
    base = f"/{_path(kind.group, kind.version)}"
    place = "/namespaces/{namespace}" if kind.namespaced else ""
    collection = f"{base}{place}/{kind.plural}"
    if kind.virtual:
        return {collection: {"post": _operation(kind, "post", _WRITE_PARAMETERS)}}
    single = collection + "/{name}"
    paths: Object = {collection: _collection(kind), single: _single(kind)}
    if kind.namespaced:
        paths[f"{base}/{kind.plural}"] = {"get": _operation(kind, "list", _LIST_PARAMETERS)}
    for name in ("status", "scale"):
        if name in kind.subresources:
            paths[f"{single}/{name}"] = {verb: _single(kind)[verb] for verb in ("get", "put", "patch")}
    return paths


def _collection(kind: Kind) -> Object:
    return {
        "get": _operation(kind, "list", _LIST_PARAMETERS),
        "post": _operation(kind, "post", _WRITE_PARAMETERS),
        "delete": _operation(kind, "deletecollection", ("dryRun", *_LIST_PARAMETERS)),
    }


def _single(kind: Kind) -> Object:
    patch = _operation(kind, "patch", (*_WRITE_PARAMETERS, "force"))
    types = CUSTOM_TYPES if kind.custom else BUILTIN_TYPES
    patch["requestBody"] = {"content": {name: {"schema": {"type": "object"}} for name in types}}
    return {
        "get": _operation(kind, "get", ()),
        "put": _operation(kind, "put", _WRITE_PARAMETERS),
        "patch": patch,
        "delete": _operation(kind, "delete", ("dryRun", "gracePeriodSeconds", "propagationPolicy")),
    }


def _operation(kind: Kind, action: str, parameters: tuple[str, ...]) -> Object:
    reference = {"$ref": REF + schema_name(kind)}
    operation: Object = {
        "operationId": f"{action}{kind.group.title().replace('.', '')}{kind.version.title()}{kind.kind}",
        "x-kubernetes-action": action,
        _GVK: _gvk(kind),
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in parameters],
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": reference}}}},
    }
    if action in ("post", "put"):
        operation["requestBody"] = {"content": {"application/json": {"schema": reference}}}
    return operation
