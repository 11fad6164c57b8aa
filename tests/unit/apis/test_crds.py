"""The definitions are structural, say what the structs say, and the committed files are fresh."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from virt_core import manifests
from virt_core.apis.crds import plain_definitions
from virt_core.apis.registry import resource_by_kind
from virt_core.apis.schema import field_descriptions, object_schema, struct_schema
from virt_core.apis.vmi import VirtualMachineInstance, VirtualMachineInstanceSpec

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "hack"))

import generate_crds  # noqa: E402


def schema_of(kind: str) -> dict[str, Any]:
    return object_schema(resource_by_kind(kind).load())


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from walk(schema[key], f"{path}[]")


def test_committed_files_are_up_to_date() -> None:
    stale = [name for name, text in generate_crds.render().items() if (generate_crds.TARGET / name).read_text() != text]
    assert not stale, f"run `make generate`: {stale}"


@pytest.mark.parametrize("kind", ["VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceMigration"])
def test_every_node_is_structural(kind: str) -> None:
    for path, node in walk(schema_of(kind)):
        loose = node.get("x-kubernetes-int-or-string") or node.get("x-kubernetes-preserve-unknown-fields")
        assert loose or "type" in node, path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert set(node.get("required", [])) <= set(node.get("properties", {})), path


def test_every_field_of_the_spec_is_described() -> None:
    bare = [path for path, node in walk(struct_schema(VirtualMachineInstanceSpec)) if path and not path.endswith("[]")
            and not node.get("description")]  # fmt: skip
    assert not [path for path in bare if ".matchExpressions" not in path]


def test_required_fields_are_those_of_the_api() -> None:
    schema = schema_of("VirtualMachineInstance")
    assert schema["required"] == ["spec"]
    spec = schema["properties"]["spec"]
    assert spec["required"] == ["domain"]
    domain = spec["properties"]["domain"]
    assert domain["required"] == ["devices"]
    disks = domain["properties"]["devices"]["properties"]["disks"]
    assert disks["items"]["required"] == ["name"]
    assert disks["maxItems"] == 256


def test_quantities_take_numbers_and_text() -> None:
    memory = schema_of("VirtualMachineInstance")["properties"]["spec"]["properties"]["domain"]["properties"]["memory"]
    assert memory["properties"]["guest"]["x-kubernetes-int-or-string"] is True
    assert memory["properties"]["guest"]["pattern"].startswith("^")


def test_template_metadata_keeps_what_it_does_not_know() -> None:
    template = schema_of("VirtualMachine")["properties"]["spec"]["properties"]["template"]
    assert template["properties"]["metadata"]["x-kubernetes-preserve-unknown-fields"] is True


def test_descriptions_come_from_the_source() -> None:
    assert field_descriptions(VirtualMachineInstance)["status"] == "What became of it."


def test_definitions_match_the_reference() -> None:
    crds = {crd["spec"]["names"]["kind"]: crd["spec"] for crd in plain_definitions().values()}
    vmi = crds["VirtualMachineInstance"]
    assert vmi["names"]["shortNames"] == ["vmi", "vmis"]
    assert [(v["name"], v["served"], v["storage"]) for v in vmi["versions"]] == [
        ("v1", True, True),
        ("v1alpha3", True, False),
    ]
    assert all("subresources" not in version for version in vmi["versions"])
    assert crds["VirtualMachine"]["versions"][0]["subresources"] == {"status": {}}
    columns = [c["name"] for c in vmi["versions"][0]["additionalPrinterColumns"]]
    assert columns == ["Age", "Phase", "IP", "NodeName", "Ready", "Live-Migratable", "Paused"]


def test_manifests_load_and_fit_their_kinds() -> None:
    objects = manifests.load_all("QUJD")
    for document in objects:
        msgspec.convert(document, resource_by_kind(document["kind"]).load())
    assert manifests.CA_BUNDLE_PLACEHOLDER not in str(objects)


def test_an_unknown_manifest_is_named() -> None:
    with pytest.raises(LookupError, match=r"nosuch\.yaml"):
        manifests.text("nosuch.yaml")
