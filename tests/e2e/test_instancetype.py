"""Instance types and preferences, from the manifest to the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Space
from .engine import GUEST_IMAGE, eventually

pytestmark = pytest.mark.e2e

GROUP = "instancetype.kubevirt.io/v1beta1"


def size(name: str, cpu: int = 2, memory: str = "160Mi", **more: Any) -> dict[str, Any]:
    spec = {"cpu": {"guest": cpu}, "memory": {"guest": memory}, **more}
    return {"apiVersion": GROUP, "kind": "VirtualMachineInstancetype", "metadata": {"name": name}, "spec": spec}


def habit(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": GROUP, "kind": "VirtualMachinePreference", "metadata": {"name": name}, "spec": spec}


def vm(name: str, size_name: str, habit_name: str = "", strategy: str = "Always", **domain: Any) -> dict[str, Any]:
    """A VM that says nothing about its size, disks' buses or NICs."""
    inner = {
        "domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}, **domain},
        "networks": [{"name": "default", "pod": {}}],
        "terminationGracePeriodSeconds": 5,
        "volumes": [{"name": "root", "containerDisk": {"image": GUEST_IMAGE}}],
    }
    spec: dict[str, Any] = {"runStrategy": strategy, "template": {"spec": inner}}
    spec["instancetype"] = {"name": size_name, "kind": "VirtualMachineInstancetype"}
    if habit_name:
        spec["preference"] = {"name": habit_name, "kind": "VirtualMachinePreference"}
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name}, "spec": spec}


def command_line(space: Space, name: str) -> str:
    pid = space.engine.qemu_pid(space.namespace, name)
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def booted(space: Space, name: str) -> Any:
    eventually(
        lambda: space.vmi(name).get("status", {}).get("phase") == "Running", within_s=120, what=f"VMI {name} runs"
    )
    return space.vmi(name)


def test_they_shape_the_machine(space: Space) -> None:
    space.apply(size("small", annotations={"example.org/size": "small"}))
    space.apply(
        habit(
            "linux",
            cpu={"preferredCPUTopology": "cores"},
            devices={"preferredDiskBus": "virtio", "preferredInterfaceModel": "e1000", "preferredRng": {}},
            machine={"preferredMachineType": "q35"},
        )
    )
    space.apply(vm("shaped", "small", "linux"))
    vmi = booted(space, "shaped")
    cpu = vmi["spec"]["domain"]["cpu"]
    assert (cpu["cores"], cpu["sockets"], cpu["threads"]) == (2, 1, 1)
    assert vmi["spec"]["domain"]["memory"]["guest"] == "160Mi"
    annotations = vmi["metadata"]["annotations"]
    assert annotations["kubevirt.io/instancetype-name"] == "small"
    assert annotations["kubevirt.io/preference-name"] == "linux"
    assert annotations["example.org/size"] == "small"
    command = command_line(space, "shaped")
    assert "cores=2" in command
    assert "e1000" in command
    assert "virtio-blk" in command
    assert "virtio-rng" in command
    with space.console("shaped") as console:
        console.prompt()
        assert "2" in console.shell("grep -c ^processor /proc/cpuinfo")


def test_a_vm_keeps_the_size_it_was_made_with(space: Space) -> None:
    space.apply(size("grows", cpu=1))
    space.apply(vm("keeps", "grows"))
    booted(space, "keeps")
    ref = eventually(
        lambda: space.engine.get("-n", space.namespace, "vm", "keeps")["status"].get("instancetypeRef"),
        within_s=20,
        what="the VM's status names the revision",
    )
    name = ref["controllerRevisionRef"]["name"]
    revision = space.engine.get("-n", space.namespace, "controllerrevision", name)
    assert revision["data"]["spec"]["cpu"]["guest"] == 1
    assert revision["metadata"]["labels"]["instancetype.kubevirt.io/object-name"] == "grows"
    space.apply(size("grows", cpu=2))
    space.kubectl("delete", "vmi", "keeps", "--timeout=60s", timeout=90)
    vmi = booted(space, "keeps")
    assert vmi["spec"]["domain"]["cpu"]["sockets"] == 1


def test_a_conflict_is_refused_with_its_path(space: Space) -> None:
    space.apply(size("small"))
    refused = space.refuse(vm("both", "small", memory={"guest": "1Gi"}, cpu={"cores": 4}))
    assert "spec.template.spec.domain.memory.guest" in refused
    assert "spec.template.spec.domain.cpu.cores" in refused


def test_requirements_are_checked(space: Space) -> None:
    space.apply(size("tiny", cpu=1))
    space.apply(habit("greedy", requirements={"cpu": {"guest": 4}}))
    assert "spec.instancetype" in space.refuse(vm("poor", "tiny", "greedy", "Halted"))


def test_expand_spec_shows_the_whole_machine(space: Space) -> None:
    space.apply(size("small"))
    space.apply(habit("linux", devices={"preferredDiskBus": "virtio"}))
    space.apply(vm("seen", "small", "linux", "Halted"))
    path = f"/apis/subresources.kubevirt.io/v1/namespaces/{space.namespace}/virtualmachines/seen/expand-spec"
    expanded = json.loads(space.kubectl("get", "--raw", path))
    inner = expanded["spec"]["template"]["spec"]
    assert "instancetype" not in expanded["spec"]
    assert inner["domain"]["cpu"]["sockets"] == 2
    assert inner["domain"]["memory"]["guest"] == "160Mi"
    assert inner["domain"]["devices"]["disks"][0]["disk"]["bus"] == "virtio"


def test_the_size_can_come_from_a_volume(space: Space) -> None:
    space.apply(size("small"))
    label = "instancetype.kubevirt.io/default-instancetype"
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk", "labels": {label: "small", f"{label}-kind": "VirtualMachineInstancetype"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    space.apply(claim)
    manifest = vm("inferred", "", strategy="Halted")
    manifest["spec"]["template"]["spec"]["volumes"] = [{"name": "root", "persistentVolumeClaim": {"claimName": "disk"}}]
    manifest["spec"]["instancetype"] = {"inferFromVolume": "root"}
    space.apply(manifest)
    found = space.engine.get("-n", space.namespace, "vm", "inferred")["spec"]["instancetype"]
    assert found == {"name": "small", "kind": "VirtualMachineInstancetype"}
