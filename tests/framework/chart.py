"""The chart's objects as Helm renders them, by name."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from framework.helm import objects, template

Object = dict[str, Any]
COMPONENTS = ("virt-api", "virt-controller", "virt-handler")


@functools.cache
def rendered(values: str = "", namespace: str = "virtpod") -> tuple[Object, ...]:
    return tuple(objects(template(values, namespace=namespace)))


def one(kind: str, name: str, values: str = "", namespace: str = "virtpod") -> Object:
    found = [o for o in rendered(values, namespace) if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{len(found)} objects {kind} {name}"
    return found[0]


def pod_specs() -> Iterator[tuple[str, Object]]:
    for obj in rendered():
        if obj["kind"] in ("Deployment", "DaemonSet", "Job"):
            yield obj["metadata"]["name"], obj["spec"]["template"]["spec"]


def containers(spec: Object) -> list[Object]:
    return [*spec.get("initContainers", []), *spec["containers"]]


def args(component: str, values: str = "") -> list[str]:
    kind = "DaemonSet" if component == "virt-handler" else "Deployment"
    given: list[str] = one(kind, component, values)["spec"]["template"]["spec"]["containers"][0]["args"]
    return given


def all_of(kind: str, values: str = "", namespace: str = "virtpod") -> list[Object]:
    return [obj for obj in rendered(values, namespace) if obj["kind"] == kind]
