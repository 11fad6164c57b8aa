"""Disks that outlive their machine, throw-away layers over them, and small disks with files."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Configure, Space, admitted
from .engine import Engine, VirtLocal, eventually
from .manifests import kernel_boot, with_volume
from .vms import Machine, vm

pytestmark = pytest.mark.e2e

MIB = 1 << 20
CLAIM = "data"


@pytest.fixture
def claim(space: Space) -> Space:
    """A claim of 64 MiB in the test's namespace."""
    classes = space.engine.get("storageclass")["items"]
    default = "storageclass.kubernetes.io/is-default-class"
    if not any(each["metadata"].get("annotations", {}).get(default) == "true" for each in classes):
        pytest.skip("the cluster has no default StorageClass")
    space.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}},
        }
    )
    return space


def with_claim(manifest: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    """A VM's or VMI's manifest with one more disk, the only one: vda."""
    holder = manifest["spec"]["template"] if manifest["kind"] == "VirtualMachine" else manifest
    with_volume(holder, "data", source)
    return manifest


def first_bytes(space: Space, name: str) -> str:
    with space.console(name) as console:
        console.prompt()
        return console.shell("dd if=/dev/vda bs=64 count=1 2>/dev/null | tr -d '\\0'")


def write(space: Space, name: str, text: str) -> None:
    with space.console(name) as console:
        console.prompt()
        console.shell(f"echo {text} | dd of=/dev/vda bs=512 conv=sync,notrunc 2>/dev/null && sync")


def disks_in_guest(space: Space, name: str) -> str:
    space.ready(name)
    with space.console(name) as console:
        console.prompt()
        return console.shell("ls /sys/block")


def test_a_volume_of_a_stopped_vm_is_in_the_guest_from_its_next_start_on(claim: Space) -> None:
    """What addvolume and removevolume do to a VM that does not run is what its guest then has."""
    space = claim
    space.apply(vm("shelf", "Manual"))
    machine = Machine(space, "shelf")
    for verb, there in (("addvolume", True), ("removevolume", False)):
        space.virtctl(verb, "shelf", f"--volume-name={CLAIM}")
        machine.virtctl("start")
        machine.printable("Running")
        assert ("sda" in disks_in_guest(space, "shelf")) is there
        machine.virtctl("stop")
        eventually(lambda: not machine.has_vmi(), within_s=60, what="no VMI")


def test_a_claims_disk_outlives_the_machine(claim: Space) -> None:
    """Made with the claim's size, written in the guest, there again after a stop and a start, and then only read."""
    space = claim
    source = {"persistentVolumeClaim": {"claimName": CLAIM}}
    space.apply(with_claim(vm("keeper", "Manual"), source))
    machine = Machine(space, "keeper")
    machine.virtctl("start")
    machine.printable("Running")
    first = machine.uid()
    (volume,) = space.ready("keeper")["status"]["volumeStatus"]
    info = volume["persistentVolumeClaimInfo"]
    assert (volume["target"], info["claimName"], info["volumeMode"]) == ("vda", CLAIM, "Filesystem")
    with space.console("keeper") as console:
        console.prompt()
        assert f"{64 * MIB // 512}\r" in console.shell("cat /sys/block/vda/size")
    write(space, "keeper", "kept-for-later")
    machine.virtctl("stop")
    eventually(lambda: not machine.has_vmi(), within_s=60, what="no VMI")
    machine.virtctl("start")
    machine.printable("Running")
    assert machine.uid() != first
    space.ready("keeper")
    assert "kept-for-later" in first_bytes(space, "keeper")
    machine.virtctl("stop")
    eventually(lambda: not machine.has_vmi(), within_s=60, what="no VMI")
    _read_through_a_layer(space)


def _read_through_a_layer(space: Space) -> None:
    """What a guest writes over a throw-away layer is gone with it."""
    layer = {"ephemeral": {"persistentVolumeClaim": {"claimName": CLAIM}}}
    for name in ("layer-1", "layer-2"):
        space.boot(with_claim(kernel_boot(name), layer))
        assert "kept-for-later" in first_bytes(space, name)
        write(space, name, "thrown-away-text")
        assert "thrown-away-text" in first_bytes(space, name)
        space.kubectl("delete", "vmi", name, "--timeout=60s", timeout=90)


def test_a_missing_claim_is_told_and_waited_for(claim: Space) -> None:
    space = claim
    source = {"persistentVolumeClaim": {"claimName": "late"}}
    manifest = vm("patient", "Always")
    space.apply(with_claim(manifest, source))
    machine = Machine(space, "patient")
    machine.printable("ErrorPvcNotFound", within_s=30)
    late = space.engine.get("-n", space.namespace, "pvc", CLAIM)
    space.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "late"},
            "spec": {"accessModes": late["spec"]["accessModes"], "resources": late["spec"]["resources"]},
        }
    )
    machine.printable("Running")


@pytest.fixture
def block_device(engine: Engine) -> Iterator[str]:
    """A block device of this machine: a file of 32 MiB on a loop device, in sectors of 4 KiB."""
    if not isinstance(engine, VirtLocal) or not Path("/dev/loop-control").exists():
        pytest.skip("needs a node on this machine, and loop devices")
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        os.truncate(file.name, 32 * MIB)
        losetup = ["losetup", "-f", "--show", "--sector-size", "4096", file.name]
        show = subprocess.run(losetup, capture_output=True, text=True, check=True)
        device = show.stdout.strip()
        try:
            yield device
        finally:
            subprocess.run(["losetup", "-d", device], check=True)


def test_a_block_device_is_the_disk_itself(space: Space, block_device: str) -> None:
    name = f"raw-{space.namespace}"
    size, modes = {"storage": "32Mi"}, ["ReadWriteOnce"]
    spec = {"accessModes": modes, "volumeMode": "Block", "storageClassName": "by-hand"}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    space.apply({**volume, "spec": {**spec, "capacity": size, "hostPath": {"path": block_device}}})
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "raw"}}
    space.apply({**claim, "spec": {**spec, "resources": {"requests": size}, "volumeName": name}})
    try:
        manifest = with_claim(kernel_boot("direct"), {"persistentVolumeClaim": {"claimName": "raw"}})
        manifest["spec"]["domain"]["devices"]["disks"][0]["blockSize"] = {"matchVolume": {}}
        space.boot(manifest)
        write(space, "direct", "straight-to-the-device")
        with space.console("direct") as console:
            console.prompt()
            assert "4096" in console.shell("cat /sys/block/vda/queue/logical_block_size")
        space.kubectl("delete", "vmi", "direct", "--timeout=60s", timeout=90)
        with open(block_device, "rb") as device:
            assert device.read(64).startswith(b"straight-to-the-device")
    finally:
        space.kubectl("delete", "pvc", "raw", "--timeout=60s", timeout=90)
        space.kubectl("delete", "pv", name, "--timeout=60s", timeout=90)


@pytest.mark.alone
def test_a_disk_in_a_directory_of_the_node(space: Space, configure: Configure) -> None:
    """Made if it is not there, with its size, and after the machine it is where the administrator put it."""
    if not isinstance(space.engine, VirtLocal):
        pytest.skip("needs a node on this machine")
    configure({"developerConfiguration": {"featureGates": ["HostDisk"]}})
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        os.chmod(directory, 0o777)  # A launcher is nobody on the node.
        path = Path(directory) / "made.img"
        source = {"hostDisk": {"path": str(path), "type": "DiskOrCreate", "capacity": "32Mi"}}
        manifest = with_claim(kernel_boot("local"), source)
        eventually(lambda: admitted(space, manifest), within_s=10, what="the gate is open")
        space.boot(manifest)
        write(space, "local", "on-the-node")
        with space.console("local") as console:
            console.prompt()
            assert str(32 * MIB // 512) in console.shell("cat /sys/block/vda/size")
        space.kubectl("delete", "vmi", "local", "--timeout=60s", timeout=90)
        assert path.read_bytes()[:64].startswith(b"on-the-node")
        again = with_claim(kernel_boot("again"), {"hostDisk": {"path": str(path), "type": "Disk"}})
        space.boot(again)
        assert "on-the-node" in first_bytes(space, "again")
        space.kubectl("delete", "vmi", "again", "--timeout=60s", timeout=90)


def test_files_as_disks(space: Space) -> None:
    """A ConfigMap, a Secret, fields of the VMI, a token and answers to Windows, each on a small disk of its own."""
    space.kubectl("create", "configmap", "answers", "--from-literal=autounattend.xml=<unattend>mine</unattend>")
    space.kubectl("create", "configmap", "conf", "--from-literal=greeting=hello-from-a-configmap")
    space.kubectl("create", "secret", "generic", "hush", "--from-literal=word=hush-hush")
    manifest = kernel_boot("files")
    manifest["metadata"]["labels"] = {"flavour": "vanilla"}
    sources: dict[str, dict[str, Any]] = {
        "conf": {"configMap": {"name": "conf", "volumeLabel": "settings"}},
        "hush": {"secret": {"secretName": "hush"}},
        "self": {"downwardAPI": {"fields": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        "token": {"serviceAccount": {"serviceAccountName": "default"}},
        "answers": {"sysprep": {"configMap": {"name": "answers"}}},
    }
    for name, source in sources.items():
        with_volume(manifest, name, source)
    space.boot(manifest)
    wanted = {
        "vda": ("greeting", "hello-from-a-configmap"),
        "vdb": ("word", "hush-hush"),
        "vdc": ("labels", 'flavour="vanilla"'),
        "vdd": ("namespace", space.namespace),
        "vde": ("autounattend.xml", "<unattend>mine</unattend>"),
    }
    with space.console("files") as console:
        console.prompt()
        for device, (file, text) in wanted.items():
            place = f"/d/{device}"
            shown = console.shell(f"mkdir -p {place}; mount -t iso9660 /dev/{device} {place}; cat {place}/{file}")
            assert text in shown
        assert "eyJ" in console.shell("cut -c1-20 /d/vdd/token")
