"""The CustomResourceDefinitions of kubevirt.io, built from the structs. `hack/generate_crds.py` writes the files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from virt_core.apis.apiextensions import (
    CustomResourceColumnDefinition,
    CustomResourceConversion,
    CustomResourceDefinition,
    CustomResourceDefinitionNames,
    CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion,
    CustomResourceSubresources,
    CustomResourceValidation,
)
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.names import GROUP, LABEL_APP, VERSION, VERSION_OLD
from virt_core.apis.registry import plain_object, resource_by_kind
from virt_core.apis.schema import object_schema


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; a wide one shows only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False


@dataclass(frozen=True, slots=True)
class CrdKind:
    """What a kind's definition says beyond its schema."""

    kind: str
    short_names: tuple[str, ...]
    columns: tuple[Column, ...]
    status_subresource: bool = True


def _condition(type_: str) -> str:
    return f".status.conditions[?(@.type=='{type_}')].status"


_AGE = Column("Age", ".metadata.creationTimestamp", "date")

KINDS: tuple[CrdKind, ...] = (
    CrdKind(
        "VirtualMachine",
        ("vm", "vms"),
        (_AGE, Column("Status", ".status.printableStatus"), Column("Ready", _condition("Ready"))),
    ),
    CrdKind(
        "VirtualMachineInstance",
        ("vmi", "vmis"),
        (
            _AGE,
            Column("Phase", ".status.phase"),
            Column("IP", ".status.interfaces[0].ipAddress"),
            Column("NodeName", ".status.nodeName"),
            Column("Ready", _condition("Ready")),
            Column("Live-Migratable", _condition("LiveMigratable"), wide=True),
            Column("Paused", _condition("Paused"), wide=True),
        ),
        # Status and metadata of a VMI are written together, in one patch.
        status_subresource=False,
    ),
    CrdKind(
        "VirtualMachineInstanceMigration",
        ("vmim", "vmims"),
        (Column("Phase", ".status.phase"), Column("VMI", ".spec.vmiName")),
    ),
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
    return CustomResourceDefinition(
        metadata=ObjectMeta(name=f"{resource.plural}.{GROUP}", labels={LABEL_APP: ""}),
        spec=CustomResourceDefinitionSpec(
            group=GROUP,
            scope="Namespaced",
            names=_names(kind, resource.plural),
            conversion=CustomResourceConversion(strategy="None"),
            versions=[_version(kind, VERSION, schema), _version(kind, VERSION_OLD, schema)],
        ),
    )


def _names(kind: CrdKind, plural: str) -> CustomResourceDefinitionNames:
    return CustomResourceDefinitionNames(
        plural=plural,
        singular=kind.kind.lower(),
        kind=kind.kind,
        list_kind=f"{kind.kind}List",
        short_names=list(kind.short_names),
        categories=["all"],
    )


def _version(kind: CrdKind, version: str, schema: dict[str, Any]) -> CustomResourceDefinitionVersion:
    old = version == VERSION_OLD
    return CustomResourceDefinitionVersion(
        name=version,
        served=True,
        storage=not old,
        deprecated=old,
        deprecation_warning=f"{GROUP}/{version} is deprecated, use {GROUP}/{VERSION}" if old else None,
        schema=CustomResourceValidation(open_api_v3_schema=schema),
        subresources=CustomResourceSubresources(status={}) if kind.status_subresource else None,
        additional_printer_columns=[_column(column) for column in kind.columns],
    )


def _column(column: Column) -> CustomResourceColumnDefinition:
    return CustomResourceColumnDefinition(
        name=column.name, type=column.type, json_path=column.path, priority=1 if column.wide else 0
    )
