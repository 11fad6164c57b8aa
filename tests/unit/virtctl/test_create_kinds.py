"""`virtctl create` of the other kinds."""

from __future__ import annotations

import pytest
from framework.creating import made, refusal


def test_instancetype() -> None:
    manifest = made("instancetype", "--cpu=2", "--memory=256Mi")
    assert manifest["kind"] == "VirtualMachineClusterInstancetype"
    assert manifest["metadata"]["name"].startswith("clusterinstancetype-")
    assert manifest["spec"] == {"cpu": {"guest": 2}, "memory": {"guest": "256Mi"}}
    devices = ["--gpu=name:g,devicename:nvidia", "--hostdevice=name:h,devicename:card", "--iothreadspolicy=auto"]
    manifest = made("instancetype", "--cpu=2", "--memory=1Gi", "--namespaced", "--name=small", *devices)
    assert (manifest["kind"], manifest["metadata"]) == ("VirtualMachineInstancetype", {"name": "small"})
    assert manifest["spec"]["gpus"] == [{"name": "g", "deviceName": "nvidia"}]
    assert manifest["spec"]["hostDevices"] == [{"name": "h", "deviceName": "card"}]
    assert manifest["spec"]["ioThreadsPolicy"] == "auto"
    here = made("instancetype", "--cpu=2", "--memory=1Gi", "-n", "here")
    assert (here["kind"], here["metadata"]["namespace"]) == ("VirtualMachineInstancetype", "here")


@pytest.mark.parametrize(
    "flags",
    [
        ["--cpu=2"],
        ["--memory=1Gi"],
        ["--cpu=0", "--memory=1Gi"],
        ["--cpu=1", "--memory=x"],
        ["--cpu=1", "--memory=1Gi", "--gpu=name:g"],
        ["--cpu=1", "--memory=1Gi", "--iothreadspolicy=many"],
    ],
)
def test_instancetype_refusals(flags: list[str]) -> None:
    refusal("instancetype", *flags)


def test_preference() -> None:
    assert made("preference")["kind"] == "VirtualMachineClusterPreference"
    manifest = made(
        "preference", "--namespaced", "--cpu-topology=spread", "--machine-type=q35", "--volume-storage-class=fast"
    )
    assert manifest["kind"] == "VirtualMachinePreference"
    assert manifest["spec"] == {
        "volumes": {"preferredStorageClassName": "fast"},
        "machine": {"preferredMachineType": "q35"},
        "cpu": {"preferredCPUTopology": "spread"},
    }
    refusal("preference", "--cpu-topology=round")


def test_clone() -> None:
    manifest = made(
        "clone",
        "--source-name=a",
        "--target-name=b",
        "--source-type=VMSnapshot",
        "--label-filter=*",
        "--template-label-filter=!x",
        "--new-mac-address=eth0:00-11-22",
        "--new-smbios-serial=s",
    )
    assert manifest["spec"] == {
        "source": {"apiGroup": "snapshot.kubevirt.io", "kind": "VirtualMachineSnapshot", "name": "a"},
        "target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "b"},
        "labelFilters": ["*"],
        "template": {"labelFilters": ["!x"]},
        "newMacAddresses": {"eth0": "00-11-22"},
        "newSMBiosSerial": "s",
    }
    assert "target type snapshot is not supported" in refusal("clone", "--source-name=a", "--target-type=snapshot")
    assert "INTERFACE:ADDRESS" in refusal("clone", "--source-name=a", "--new-mac-address=eth0")
    refusal("clone")
