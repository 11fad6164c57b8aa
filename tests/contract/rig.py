"""What all cases share on a server: two CRDs, and the Service behind which the aggregated API listens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contract.backends import AGGREGATED, NAMESPACE, SERVICE, Backends
from contract.engine import Engine
from contract.normal import Normal
from contract.table import CASES, Case
from contract.talk import GROUP, Talk

Object = dict[str, Any]

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PLACE = f"/api/v1/namespaces/{NAMESPACE}"
_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def gadget_schema() -> Object:
    """One field for each thing that a schema can say."""
    return {
        "type": "object",
        "description": "A gadget of the contract test.",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "maximum": 100},
                    "replicas": {"type": "integer", "format": "int32", "default": 1},
                    "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
                    "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5, "minLength": 2},
                    "ratio": {"type": "number", "exclusiveMinimum": True, "minimum": 0, "multipleOf": 0.5},
                    "on": {"type": "boolean"},
                    "port": {"x-kubernetes-int-or-string": True},
                    "maybe": {"type": "string", "nullable": True},
                    "when": {"type": "string", "format": "date-time"},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2},
                    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                    "order": {"type": "array", "items": {"type": "string"}, "maxItems": 3, "minItems": 1},
                    "disks": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": {"type": "string"},
                                "bus": {"type": "string", "default": "virtio"},
                                "size": {"type": "integer"},
                            },
                        },
                    },
                    "choice": {
                        "type": "object",
                        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                    },
                    "selector": {
                        "type": "object",
                        "x-kubernetes-map-type": "atomic",
                        "additionalProperties": {"type": "string"},
                    },
                },
            },
            "status": {
                "type": "object",
                "properties": {
                    "replicas": {"type": "integer"},
                    "selector": {"type": "string"},
                    "phase": {"type": "string"},
                    "conditions": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["type"],
                        "items": {
                            "type": "object",
                            "required": ["type"],
                            "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                        },
                    },
                },
            },
        },
    }


_COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "Where it is."},
    {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "priority": 1},
    {"name": "On", "type": "boolean", "jsonPath": ".spec.on", "priority": 1},
    {"name": "Tags", "type": "string", "jsonPath": ".spec.tags", "priority": 1},
]
_SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.selector",
}


def crd(plural: str, kind: str, versions: list[Object], *, scope: str = "Namespaced", group: str = GROUP) -> Object:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": {"plural": plural, "kind": kind}, "versions": versions},
    }


def version(name: str, schema: Object, *, storage: bool = True, served: bool = True, **more: Any) -> Object:
    return {"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": schema}, **more}


def _crds() -> list[Object]:
    subresources = {"status": {}, "scale": _SCALE}
    schema = gadget_schema()
    both = [
        version("v1", schema, subresources=subresources, additionalPrinterColumns=_COLUMNS),
        version("v1alpha1", schema, storage=False, subresources=subresources, additionalPrinterColumns=_COLUMNS),
    ]
    gadgets = crd("gadgets", "Gadget", both)
    gadgets["spec"]["names"] |= {"shortNames": ["gd"], "categories": ["contract"]}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return [gadgets, crd("parts", "Part", [version("v1", free)], scope="Cluster")]


@contextmanager
def rig(engine: Engine, directory: Path) -> Iterator[Backends]:
    """Installs what is shared, and removes it again."""
    backends = Backends(engine.host, directory)
    talk = Talk(engine, backends, Normal())
    with backends.running():
        _remove(talk)
        try:
            _install(talk)
            yield backends
        finally:
            _remove(talk)
            talk.send("DELETE", _PLACE)


def _install(talk: Talk) -> None:
    for obj in _crds():
        talk.given(_CRDS, obj)
        talk.undo(f"{_CRDS}/{obj['metadata']['name']}")
    for plural in (f"/apis/{GROUP}/v1/gadgets", f"/apis/{GROUP}/v1alpha1/gadgets", f"/apis/{GROUP}/v1/parts"):
        talk.wait(plural, lambda reply: reply.status == 200)
    _install_service(talk)
    spec = {"group": AGGREGATED, "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10}
    spec |= {"caBundle": talk.backends.bundle, "service": {"name": SERVICE, "namespace": NAMESPACE, "port": 443}}
    talk.given(_SERVICES, {"metadata": {"name": f"v1.{AGGREGATED}"}, "spec": spec})
    talk.wait(f"{_SERVICES}/v1.{AGGREGATED}", lambda reply: '"True"' in json.dumps(reply.body))


def _install_service(talk: Talk) -> None:
    # An earlier run's may still be on its way out.
    talk.wait(_PLACE, lambda reply: reply.status == 404 or reply.body["status"]["phase"] == "Active", within_s=60)
    talk.send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    ports = [{"name": "https", "port": 443, "targetPort": talk.backends.port}]
    place = f"/api/v1/namespaces/{NAMESPACE}/services"
    talk.given(place, {"metadata": {"name": SERVICE}, "spec": {"ports": ports}})
    piece = {
        "metadata": {"name": SERVICE, "labels": {"kubernetes.io/service-name": SERVICE}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": talk.backends.port}],
        "endpoints": [{"addresses": [talk.engine.host], "conditions": {"ready": True}}],
    }
    talk.given(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices", piece)


def _remove(talk: Talk) -> None:
    gone = [f"{_CRDS}/{obj['metadata']['name']}" for obj in _crds()]
    gone.append(f"{_SERVICES}/v1.{AGGREGATED}")
    gone.append(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{SERVICE}")
    gone.append(f"/api/v1/namespaces/{NAMESPACE}/services/{SERVICE}")
    for path in gone:
        talk.send("DELETE", path)
        talk.wait(path, lambda reply: reply.status == 404)


def converse(case: Case, engine: Engine, backends: Backends) -> list[Object]:
    """The transcript of one case."""
    talk = Talk(engine, backends, Normal(words=case.words, ownership=case.ownership))
    backends.take_reviews()
    try:
        case.run(talk)
    finally:
        talk.close()
    return talk.transcript


def all_cases() -> dict[str, Case]:
    from contract import cases

    assert cases.__name__
    return CASES
