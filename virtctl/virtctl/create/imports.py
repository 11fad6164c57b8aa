"""`--volume-import`: DataVolume templates from every source that CDI knows."""

from __future__ import annotations

from typing import Any

from virtctl.create.params import flag_error, parse, prefixed, required, split

FLAG = "volume-import"

COMMON = {"size": "quantity", "type": "str", "name": "str", "bootorder": "uint"}
_NAMED = {"src": "str", **COMMON}
#: Type: its parameters.
SHAPES: dict[str, dict[str, str]] = {
    "blank": COMMON,
    "gcs": {"secretref": "str", "url": "str", **COMMON},
    "http": {
        "certconfigmap": "str", "extraheaders": "list", "secretextraheaders": "list", "secretref": "str", "url": "str",
        **COMMON,
    },
    "imageio": {"certconfigmap": "str", "diskid": "str", "secretref": "str", "url": "str", **COMMON},
    "pvc": _NAMED,
    "registry": {
        "certconfigmap": "str", "imagestream": "str", "pullmethod": "str", "secretref": "str", "url": "str", **COMMON,
    },
    "s3": {"certconfigmap": "str", "secretref": "str", "url": "str", **COMMON},
    "vddk": {
        "backingfile": "str", "initimageurl": "str", "secretref": "str", "thumbprint": "str", "url": "str",
        "uuid": "str", **COMMON,
    },
    "snapshot": _NAMED,
    "ds": _NAMED,
}  # fmt: skip
_NEEDED = {
    "gcs": ("url",),
    "http": ("url",),
    "imageio": ("url", "diskid"),
    "s3": ("url",),
    "vddk": ("url", "uuid", "thumbprint", "secretref", "backingfile"),
    "pvc": ("src",),
    "snapshot": ("src",),
    "ds": ("src",),
}
_SIZE_OPTIONAL = ("pvc", "snapshot", "ds")
#: Our parameter names: the fields of a DataVolume source.
_FIELDS = {
    "secretref": "secretRef", "certconfigmap": "certConfigMap", "extraheaders": "extraHeaders",
    "secretextraheaders": "secretExtraHeaders", "diskid": "diskId", "imagestream": "imageStream",
    "pullmethod": "pullMethod", "backingfile": "backingFile", "initimageurl": "initImageURL",
}  # fmt: skip


def parse_import(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters, and the DataVolume's spec without its storage."""
    kind = split(FLAG, text).get("type", "")
    if not kind:
        raise flag_error(FLAG, "type must be specified")
    if kind not in SHAPES:
        raise flag_error(FLAG, f'invalid volume import type "{kind}", see help for supported values')
    params = parse(FLAG, text, SHAPES[kind])
    required(FLAG, params, *_NEEDED.get(kind, ()))
    if kind not in _SIZE_OPTIONAL:
        required(FLAG, params, "size")
    if kind == "ds":
        return params, {"sourceRef": _source_ref(params["src"])}
    if kind in ("pvc", "snapshot"):
        return params, {"source": {kind: _named(kind, params["src"])}}
    if kind == "registry":
        _check_registry(params)
    fields = {_FIELDS.get(name, name): value for name, value in params.items() if name not in COMMON}
    return params, {"source": {kind: fields}}


def special(kind: str) -> dict[str, str]:
    """The parameters that only this type has."""
    return {name: shape for name, shape in SHAPES[kind].items() if name not in COMMON}


def _named(kind: str, text: str) -> dict[str, str]:
    namespace, name = prefixed(FLAG, text, "src invalid: ")
    if not namespace:
        raise flag_error(FLAG, f'namespace of {kind} "{name}" must be specified')
    return {"name": name, "namespace": namespace}


def _source_ref(text: str) -> dict[str, str]:
    namespace, name = prefixed(FLAG, text, "src invalid: ")
    return {"kind": "DataSource", "name": name} | ({"namespace": namespace} if namespace else {})


def _check_registry(params: dict[str, Any]) -> None:
    if params.get("pullmethod", "pod") not in ("pod", "node"):
        raise flag_error(FLAG, "pullmethod must be set to pod or node")
    if bool(params.get("url")) == bool(params.get("imagestream")):
        raise flag_error(FLAG, "exactly one of url or imagestream must be defined")


def can_infer_from(spec: dict[str, Any]) -> bool:
    """Whether such a DataVolume may carry the labels that name an instance type."""
    return "sourceRef" in spec or any(kind in spec.get("source", {}) for kind in ("pvc", "registry", "snapshot"))
