"""Names that go into paths, manifests that are filled in, objects that are read."""

from __future__ import annotations

import json

import pytest

from virt_api.automation.failures import Failure
from virt_api.automation.objects import VM, VMI, manifest, namespace_of, resource_of, target_of, to_object
from virt_protos.automation.v1 import automation_pb2 as pb


def ref(name: str, namespace: str = "", kind: pb.Kind.ValueType = pb.KIND_VIRTUAL_MACHINE) -> pb.Ref:
    return pb.Ref(kind=kind, namespace=namespace, name=name)


def test_paths() -> None:
    assert target_of(ref("a.b")).path == "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/a.b"
    assert VMI.path() == "/apis/kubevirt.io/v1/virtualmachineinstances"
    assert VM.sub_path("n", "m", "start") == ("/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachines/m/start")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "A", "a%2f", "-a", "a" * 300, "a\n", "a?x", "ä"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(Failure):
        target_of(ref(name))
    if name:
        with pytest.raises(Failure):
            namespace_of(name)


def test_a_kind_must_be_given() -> None:
    with pytest.raises(Failure, match="KIND_VIRTUAL_MACHINE"):
        resource_of(0)


def test_a_manifest_is_filled_in() -> None:
    namespace, body = manifest(VM, b'{"metadata":{"name":"x","namespace":"n"}}', "")
    document = json.loads(body)
    assert (namespace, document["kind"], document["apiVersion"]) == ("n", "VirtualMachine", "kubevirt.io/v1")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "not JSON"),
        (b"[]", "not an object"),
        (b'{"kind":"Secret"}', "kind is 'Secret'"),
        (b'{"metadata":[]}', "metadata is not an object"),
        (b'{"metadata":{"namespace":"other"}}', "metadata.namespace is 'other'"),
        (b'{"metadata":{"namespace":7}}', "metadata.namespace is 7"),
    ],
)
def test_manifests_that_make_no_sense(body: bytes, told: str) -> None:
    with pytest.raises(Failure, match=told):
        manifest(VM, body, "mine")


def test_a_virtual_machine_shows_its_printable_status() -> None:
    body = {
        "metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"printableStatus": "Stopped"},
    }
    obj = to_object(VM, json.dumps(body).encode())
    assert (obj.phase, obj.ready, obj.deleting) == ("Stopped", False, True)
    assert to_object(VM, b"{}").phase == ""
