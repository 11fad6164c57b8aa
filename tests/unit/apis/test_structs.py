"""The structs read and write the wire's names, and lose nothing that they know."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from virt_core.apis.base import decode, encode, to_plain
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.apis.registry import (
    RESOURCES,
    Resource,
    encode_object,
    key_of,
    owner_reference,
    resource_by_kind,
    resource_of,
    split_key,
)
from virt_core.apis.services import Service
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance

VMI: dict[str, Any] = {
    "metadata": {"name": "a", "namespace": "n", "uid": "u", "labels": {"x": "y"}},
    "spec": {
        "domain": {
            "resources": {"requests": {"memory": "1Gi"}},
            "devices": {
                "autoattachVSOCK": True,
                "disks": [{"name": "d", "dedicatedIOThread": True, "cdrom": {"readonly": True}}],
                "interfaces": [{"name": "default", "masquerade": {}, "macAddress": "02:00:00:00:00:01"}],
            },
            "ioThreadsPolicy": "auto",
            "firmware": {"kernelBoot": {"container": {"image": "i", "kernelPath": "/k"}}},
        },
        "volumes": [
            {"name": "d", "cloudInitNoCloud": {"userDataBase64": "eA=="}},
            {"name": "w", "downwardAPI": {"volumeLabel": "l"}},
        ],
        "networks": [{"name": "default", "pod": {"vmNetworkCIDR": "10.0.3.0/24", "vmIPv6NetworkCIDR": "fd10::/120"}}],
        "livenessProbe": {"exec": {"command": ["true"]}},
    },
    "status": {
        "VSOCKCID": 3,
        "guestOSInfo": {"prettyName": "Debian", "versionId": "12"},
        "interfaces": [{"ipAddress": "10.0.0.1", "ipAddresses": ["10.0.0.1"], "queueCount": 1}],
        "currentCPUTopology": {"cores": 1},
        "handoffs": [{"name": "accepted", "owner": "virt-api", "time": "2026-01-01T00:00:00.000000Z"}],
        "migrationState": {"targetCPUSet": [1], "migrationConfiguration": {"completionTimeoutPerGiB": 150}},
    },
}
POD: dict[str, Any] = {
    "metadata": {},
    "spec": {
        "hostPID": True,
        "setHostnameAsFQDN": False,
        "containers": [
            {"name": "c", "resources": {"limits": {"cpu": 1}}, "livenessProbe": {"exec": {"command": ["x"]}}}
        ],
        "volumes": [
            {"name": "v", "image": {"reference": "r"}},
            {"name": "p", "projected": {"sources": [{"downwardAPI": {}}]}},
        ],
    },
    "status": {
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "hostIP": "10.0.0.2",
        "hostIPs": [{"ip": "10.0.0.2"}],
        "containerStatuses": [{"name": "c", "imageID": "i", "containerID": "x"}],
        "qosClass": "Burstable",
    },
}
SERVICE: dict[str, Any] = {"metadata": {}, "spec": {"clusterIP": "10.0.0.1", "externalIPs": ["1.2.3.4"]}, "status": {}}
NODE: dict[str, Any] = {
    "metadata": {},
    "spec": {"podCIDR": "10.0.0.0/24", "providerID": "x"},
    "status": {"nodeInfo": {"machineID": "m", "systemUUID": "s", "bootID": "b", "osImage": "o"}},
}
VM: dict[str, Any] = {
    "metadata": {},
    "spec": {"template": {"spec": {"domain": {"resources": {}, "devices": {}}}}, "runStrategy": "Always"},
    "status": {"startFailure": {"lastFailedVMIUID": "u"}, "printableStatus": "Running"},
}


@pytest.mark.parametrize(
    ("cls", "plain"),
    [(VirtualMachineInstance, VMI), (Pod, POD), (Service, SERVICE), (Node, NODE), (VirtualMachine, VM)],
)
def test_round_trip_keeps_every_known_name(cls: type[Any], plain: dict[str, Any]) -> None:
    obj = decode(msgspec.json.encode(plain), cls)
    assert msgspec.json.decode(encode(obj)) == plain


def test_unknown_fields_are_dropped_and_types_are_checked_with_their_path() -> None:
    obj = decode(b'{"spec":{"surprise":1,"domain":{"devices":{}}}}', VirtualMachineInstance)
    assert "surprise" not in to_plain(obj)["spec"]
    with pytest.raises(msgspec.ValidationError, match=r"\$\.spec\.domain\.cpu\.cores"):
        decode(b'{"spec":{"domain":{"cpu":{"cores":"two"}}}}', VirtualMachineInstance)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.kind)
def test_every_kind_of_the_registry_has_a_struct_that_says_so(resource: Resource) -> None:
    cls = resource.load()
    fields = {field.name: field.default for field in msgspec.structs.fields(cls)}
    assert (fields["api_version"], fields["kind"]) == (resource.api_version, resource.kind)
    assert resource_of(cls) is resource
    msgspec.json.Decoder(cls)


def test_an_encoded_object_says_what_it_is() -> None:
    assert msgspec.json.decode(encode_object(Pod()))["kind"] == "Pod"
    assert msgspec.json.decode(encode_object(VirtualMachineInstance()))["apiVersion"] == "kubevirt.io/v1"


def test_a_struct_that_is_no_kind_is_refused() -> None:
    with pytest.raises(LookupError, match="int"):
        resource_of(int)


def test_keys_paths_and_owners() -> None:
    vmi = decode(msgspec.json.encode(VMI), VirtualMachineInstance)
    assert key_of(vmi) == "n/a"
    assert split_key("n/a") == ("n", "a")
    assert split_key("node1") == ("", "node1")
    resource = resource_by_kind("VirtualMachineInstance")
    assert resource.path("n", "a") == "/apis/kubevirt.io/v1/namespaces/n/virtualmachineinstances/a"
    assert resource_by_kind("Node").path(name="x", subresource="status") == "/api/v1/nodes/x/status"
    assert to_plain(owner_reference(vmi))["controller"] is True
