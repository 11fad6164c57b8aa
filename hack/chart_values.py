"""The chart's values as others see them: the README's table from the comments in values.yaml, and values.schema.json.

The schema refuses every name that it does not know, so that a typo is an error and not a default. What may stand in
`kubevirt` is taken from the KubeVirt kind's own schema.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from virt_core.apis.crds import plain_definitions

README_START = "<!-- values: made by `make generate` from values.yaml -->"
README_END = "<!-- end of values -->"
_KEY = re.compile(r"^( *)([A-Za-z]\w*):(.*)$")
_DURATION = "^([0-9]+(h|m|s))+$"
_LEVELS = ["debug", "info", "warning", "error"]

Schema = dict[str, Any]


def documented(text: str) -> dict[str, str]:
    """Dotted path → the comment above it, for every value that has one."""
    found: dict[str, str] = {}
    stack: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith("#"):
            comment.append(line.strip().lstrip("# ").rstrip())
            continue
        if match := _KEY.match(line):
            indent = len(match[1])
            stack = [*[(depth, key) for depth, key in stack if depth < indent], (indent, match[2])]
            if comment:
                found[".".join(key for _, key in stack)] = " ".join(comment)
        comment = []
    return found


def values_table(text: str) -> str:
    values = yaml.safe_load(text)
    rows = ["| Value | Default | What it is |", "|---|---|---|"]
    for path, comment in documented(text).items():
        default = json.dumps(_at(values, path), ensure_ascii=False)
        rows.append(f"| `{path}` | `{default}` | {comment} |")
    return "\n".join(rows) + "\n"


def _at(values: Any, path: str) -> Any:
    for part in path.split("."):
        values = values[part]
    return values


def schema_text() -> str:
    return json.dumps(_schema(), indent=1, ensure_ascii=False) + "\n"


def _schema() -> Schema:
    top = _object(
        global_={"type": "object"},
        images=_images(),
        virtApi=_component(replicas=_integer(1), guestfsImage=_text()),
        virtController=_component(
            replicas=_integer(1),
            workers=_integer(1),
            launcherUserNamespaces=_flag(),
            exportURL=_text("^(https://[^/?#]+)?$"),
            exportCA=_text("^(\\s*-----BEGIN CERTIFICATE-----|$)"),
        ),
        virtHandler=_component(
            kubeletRoot=_text("^/"),
            stateDir=_text("^/"),
            maxUnavailable={"oneOf": [_integer(1), _text("^[0-9]+%$")]},
            probe=_object(resources=_resources()),
            reserve=_object(resources=_resources()),
        ),
        dataVolumes=_object(enabled=_flag()),
        kubevirt=_object(
            configuration=_of_kubevirt("configuration"), workloadUpdateStrategy=_of_kubevirt("workloadUpdateStrategy")
        ),
        certificates=_object(
            provider={"enum": ["builtin", "cert-manager"]},
            caLifetime=_text(_DURATION),
            leafLifetime=_text(_DURATION),
            certManager=_object(issuerRef=_object(name=_text(), kind=_text(), group=_text())),
        ),
        priorityClass=_object(create=_flag(), name=_text()),
        podDisruptionBudget=_object(enabled=_flag()),
        networkPolicies=_object(enabled=_flag(), apiServerFrom=_peers(), automationFrom=_peers(), metricsFrom=_peers()),
        admissionPolicies=_object(enabled=_flag()),
        serviceMonitor=_object(enabled=_flag(), labels=_strings(), interval=_text(_DURATION)),
        prometheusRule=_object(enabled=_flag(), labels=_strings()),
        uninstall=_object(allowWithMachines=_flag()),
    )
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart virtpod", **top}


def _object(**properties: Schema) -> Schema:
    """An object with these members and no others. A trailing underscore is for Python's keywords."""
    members = {name.rstrip("_"): schema for name, schema in properties.items()}
    return {"type": "object", "additionalProperties": False, "properties": members}


def _images() -> Schema:
    image = _object(repository=_text("^.+$"), digest=_text("^(sha256:[0-9a-f]{64})?$"))
    return _object(
        registry=_text(),
        tag=_text(),
        pullPolicy={"enum": ["IfNotPresent", "Always", "Never"]},
        pullSecrets={"type": "array", "items": _text()},
        **dict.fromkeys(("virtApi", "virtController", "virtHandler", "virtLauncher"), image),
    )


def _component(**own: Schema) -> Schema:
    return _object(
        logLevel={"enum": _LEVELS},
        resources=_resources(),
        nodeSelector=_strings(),
        tolerations={"type": "array", "items": _toleration()},
        podAnnotations=_strings(),
        **own,
    )


def _resources() -> Schema:
    amounts = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
    return _object(requests=amounts, limits=amounts)


def _toleration() -> Schema:
    return _object(
        key=_text(),
        operator={"enum": ["Exists", "Equal", "Lt", "Gt"]},
        value=_text(),
        effect={"enum": ["", "NoSchedule", "PreferNoSchedule", "NoExecute"]},
        tolerationSeconds=_integer(0),
    )


def _peers() -> Schema:
    anything = {"type": "object"}
    peer = _object(podSelector=anything, namespaceSelector=anything, ipBlock=anything)
    return {"type": "array", "items": peer}


def _strings() -> Schema:
    return {"type": "object", "additionalProperties": {"type": "string"}}


def _text(pattern: str = "") -> Schema:
    return {"type": "string", "pattern": pattern} if pattern else {"type": "string"}


def _integer(least: int) -> Schema:
    return {"type": "integer", "minimum": least}


def _flag() -> Schema:
    return {"type": "boolean"}


def _of_kubevirt(field: str) -> Schema:
    kind = plain_definitions()["kubevirts.yaml"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return _strict(kind["properties"]["spec"]["properties"][field])


def _strict(schema: Schema) -> Schema:
    """A kind's schema without its texts and Kubernetes' own words, refusing names that it does not list."""
    out: Schema = {}
    for key in ("type", "enum", "minimum", "maximum", "pattern", "required"):
        if key in schema:
            out[key] = schema[key]
    if schema.get("x-kubernetes-int-or-string"):
        out["type"] = ["integer", "string"]
    if "properties" in schema:
        out["properties"] = {name: _strict(each) for name, each in schema["properties"].items()}
        out["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    elif isinstance(schema.get("additionalProperties"), dict):
        out["additionalProperties"] = _strict(schema["additionalProperties"])
    if "items" in schema:
        out["items"] = _strict(schema["items"])
    return out
