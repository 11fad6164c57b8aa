"""The CustomResourceDefinitions, built from the structs. `hack/generate_crds.py` writes the files."""

from __future__ import annotations

from typing import Any

from virt_core.apis.apiextensions import (
    CustomResourceColumnDefinition,
    CustomResourceDefinition,
    CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion,
    CustomResourceSubresources,
    CustomResourceSubresourceScale,
    CustomResourceValidation,
)
from virt_core.apis.crdkinds import KINDS, Column, CrdKind, Version
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.names import LABEL_APP
from virt_core.apis.registry import plain_object, resource_by_kind
from virt_core.apis.schema import object_schema

LABEL_OPERATOR = "operator.kubevirt.io"
_SCALE = CustomResourceSubresourceScale(
    spec_replicas_path=".spec.replicas",
    status_replicas_path=".status.replicas",
    label_selector_path=".status.labelSelector",
)


def custom_resource_definitions() -> list[CustomResourceDefinition]:
    """All definitions, in a fixed order."""
    return [_definition(kind) for kind in KINDS]


def plain_definitions() -> dict[str, dict[str, Any]]:
    """File name → definition as a plain document."""
    return {f"{crd.spec.names.plural}.yaml": plain_object(crd) for crd in custom_resource_definitions()}


def _definition(kind: CrdKind) -> CustomResourceDefinition:
    resource = resource_by_kind(kind.kind)
    schema = object_schema(resource.load())
    label = LABEL_OPERATOR if kind.kind == "KubeVirt" else LABEL_APP
    return CustomResourceDefinition(
        metadata=ObjectMeta(name=f"{resource.plural}.{resource.group}", labels={label: ""}),
        spec=CustomResourceDefinitionSpec(
            group=resource.group,
            scope="Namespaced" if resource.namespaced else "Cluster",
            names=_names(kind, resource.plural),
            versions=[_version(kind, version, schema) for version in kind.versions],
        ),
    )


def _names(kind: CrdKind, plural: str) -> CustomResourceDefinitionNames:
    return CustomResourceDefinitionNames(
        plural=plural,
        singular=kind.kind.lower(),
        kind=kind.kind,
        list_kind=f"{kind.kind}List",
        short_names=list(kind.short_names),
        categories=["all"] if kind.in_all else [],
    )


def _version(kind: CrdKind, version: Version, schema: dict[str, Any]) -> CustomResourceDefinitionVersion:
    return CustomResourceDefinitionVersion(
        name=version.name,
        served=True,
        storage=version.storage,
        deprecated=bool(version.warning),
        deprecation_warning=version.warning or None,
        schema=CustomResourceValidation(open_api_v3_schema=schema),
        subresources=_subresources(kind),
        additional_printer_columns=[_column(column) for column in kind.columns],
    )


def _subresources(kind: CrdKind) -> CustomResourceSubresources | None:
    if not kind.status_subresource:
        return None
    return CustomResourceSubresources(status={}, scale=_SCALE if kind.scale_subresource else None)


def _column(column: Column) -> CustomResourceColumnDefinition:
    return CustomResourceColumnDefinition(
        name=column.name, type=column.type, json_path=column.path, priority=1 if column.wide else 0
    )
