"""Writes the table of field names and types of the built-in Kubernetes kinds that virt-local serves.

The source is the installed `kubernetes` client package; virt-local itself never imports it. One line is one type:
`NAME field:TYPE field!:TYPE …`, where `!` marks a required field, `[]T` a list, `{}T` a map, `intstr` a number or a
text and `any` anything.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from kubernetes.client import models

ROOTS = [
    "V1Namespace",
    "V1Node",
    "V1Pod",
    "CoreV1Event",
    "EventsV1Event",
    "V1ConfigMap",
    "V1Secret",
    "V1ServiceAccount",
    "V1Service",
    "V1EndpointSlice",
    "V1PersistentVolume",
    "V1PersistentVolumeClaim",
    "V1StorageClass",
    "V1Lease",
    "V1ControllerRevision",
    "V1PodDisruptionBudget",
    "V1PriorityClass",
    "V1NetworkPolicy",
    "V1LimitRange",
    "V1ResourceQuota",
    "V1Role",
    "V1RoleBinding",
    "V1ClusterRole",
    "V1ClusterRoleBinding",
    "V1CustomResourceDefinition",
    "V1MutatingWebhookConfiguration",
    "V1ValidatingWebhookConfiguration",
    "V1APIService",
    "V1TokenReview",
    "V1SubjectAccessReview",
    "V1SelfSubjectAccessReview",
    "V1LocalSubjectAccessReview",
    "V1SelfSubjectRulesReview",
    "V1SelfSubjectReview",
    "AuthenticationV1TokenRequest",
    "V1Eviction",
    "V1Binding",
    "V1Scale",
    "V1Status",
    "V1DeleteOptions",
]
SCALARS = {
    "str": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "object": "any",
    "datetime": "time",
    "bytes": "bytes",
}
# The client calls quantities text; the API takes numbers too.
QUANTITY_MAPS = {"limits", "requests", "capacity", "allocatable", "overhead", "allocatedResources", "hard", "used"}
QUANTITY_MAPS |= {"default", "defaultRequest", "max", "min", "maxLimitRequestRatio"}
INT_OR_STRING = {"port", "targetPort", "minAvailable", "maxUnavailable"}
QUANTITIES = {"sizeLimit", "divisor"}
OUTPUT = Path(__file__).resolve().parent.parent / "local/virt_local/apiserver/schema/builtin_types.txt"


def type_code(name: str, text: str, found: set[str]) -> str:
    if match := re.fullmatch(r"(?:List|list)\[(.*)\]", text):
        return "[]" + type_code("", match[1], found)
    if match := re.fullmatch(r"(?:Dict|dict)[\[(]str, (.*)[\])]", text):
        return "{}quantity" if name in QUANTITY_MAPS and match[1] == "str" else "{}" + type_code("", match[1], found)
    if text == "object" and name in INT_OR_STRING:
        return "intstr"
    if text in SCALARS:
        return "quantity" if name in QUANTITIES and text == "str" else SCALARS[text]
    found.add(text)
    return text


def is_required(cls: Any, attribute: str) -> bool:
    wire = cls.attribute_map[attribute]
    return any(field.is_required() for name, field in cls.model_fields.items() if wire in (name, field.alias))


def line_of(name: str, found: set[str]) -> str:
    cls = getattr(models, name)
    parts = [name]
    for attribute, text in sorted(cls.openapi_types.items(), key=lambda item: cls.attribute_map[item[0]]):
        wire = cls.attribute_map[attribute]
        mark = "!" if is_required(cls, attribute) else ""
        parts.append(f"{wire}{mark}:{type_code(wire, text, found)}")
    return " ".join(parts)


def main() -> None:
    lines: dict[str, str] = {}
    waiting = set(ROOTS)
    while waiting:
        name = waiting.pop()
        found: set[str] = set()
        lines[name] = line_of(name, found)
        waiting |= found - lines.keys()
    text = "\n".join(lines[name] for name in sorted(lines)) + "\n"
    if "--check" in sys.argv:
        sys.exit(0 if OUTPUT.read_text() == text else "builtin_types.txt is not what the generator writes")
    OUTPUT.write_text(text)


if __name__ == "__main__":
    main()
