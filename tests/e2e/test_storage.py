"""Disks that last, on volumes that the engine's own storage makes: kept, grown, copied, saved, as guests see them."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Space
from .engine import eventually
from .loopdisks import claim, skip_without_loop_devices
from .manifests import kernel_boot, with_volume
from .vms import Machine, vm

pytestmark = [pytest.mark.e2e, pytest.mark.patient]

MIB = 1 << 20
_PROVISIONER = "virt-local/hostpath"
_GROUP = "snapshot.storage.k8s.io"


@pytest.fixture
def stored(space: Space) -> Space:
    """A namespace on an engine whose default class is ours."""
    default = "storageclass.kubernetes.io/is-default-class"
    for each in space.engine.get("storageclass")["items"]:
        if each["metadata"].get("annotations", {}).get(default) == "true" and each["provisioner"] == _PROVISIONER:
            return space
    pytest.skip("the default StorageClass is another's")


def with_claim(manifest: dict[str, Any], name: str) -> dict[str, Any]:
    """A VM's or VMI's manifest with one more disk, the only one: vda."""
    holder = manifest["spec"]["template"] if manifest["kind"] == "VirtualMachine" else manifest
    with_volume(holder, "data", {"persistentVolumeClaim": {"claimName": name}})
    return manifest


def shell(space: Space, name: str, line: str) -> str:
    with space.console(name) as console:
        console.prompt()
        return console.shell(line)


def write_blocks(space: Space, name: str) -> str:
    """Random blocks all over the disk; their sum, as the guest reads it back."""
    line = "for n in 0 3 9 15; do dd if=/dev/urandom of=/dev/vda bs=1M seek=$n count=1 conv=notrunc 2>/dev/null; done"
    shell(space, name, f"{line}; sync")
    return sum_of(space, name)


def sum_of(space: Space, name: str) -> str:
    found = shell(space, name, "dd if=/dev/vda bs=1M count=16 2>/dev/null | md5sum")
    return next(word for word in found.split() if len(word) == 32 and set(word) <= set("0123456789abcdef"))


def capacity(space: Space, name: str) -> str:
    found: str = space.engine.get("-n", space.namespace, "pvc", name)["status"]["capacity"]["storage"]
    return found


def grow(space: Space, name: str, size: str) -> None:
    patch = f'{{"spec":{{"resources":{{"requests":{{"storage":"{size}"}}}}}}}}'
    space.kubectl("patch", "pvc", name, "-p", patch)
    eventually(lambda: capacity(space, name) == size, within_s=30, what="a larger claim")


def stop(machine: Machine) -> None:
    machine.virtctl("stop")
    eventually(lambda: not machine.has_vmi(), within_s=60, what="no VMI")


def start(machine: Machine, space: Space, name: str) -> None:
    machine.virtctl("start")
    machine.printable("Running")
    space.ready(name)


@pytest.mark.parametrize("mode", ["Filesystem", "Block"])
def test_a_disk_is_kept_grown_copied_and_saved(stored: Space, mode: str) -> None:
    """The same bytes after a restart, in a clone and in a restored snapshot; the guest sees its claim grow."""
    space = stored
    if mode == "Block":
        skip_without_loop_devices(space)
    claim(space, "origin", "32Mi", volumeMode=mode)
    space.apply(with_claim(vm("keeper", "Manual"), "origin"))
    machine = Machine(space, "keeper")
    start(machine, space, "keeper")
    wanted = write_blocks(space, "keeper")
    grow(space, "origin", "64Mi")
    seen = f"{64 * MIB // 512}\r"
    eventually(lambda: seen in shell(space, "keeper", "cat /sys/block/vda/size"), within_s=60, what="a larger disk")
    stop(machine)
    source = {"apiGroup": _GROUP, "kind": "VolumeSnapshot", "name": "saved"}
    kind = {"apiVersion": f"{_GROUP}/v1", "kind": "VolumeSnapshot", "metadata": {"name": "saved"}}
    space.apply({**kind, "spec": {"source": {"persistentVolumeClaimName": "origin"}}})
    start(machine, space, "keeper")
    assert sum_of(space, "keeper") == wanted
    space.kubectl(
        "wait", "--for=jsonpath={.status.readyToUse}=true", "volumesnapshot/saved", "--timeout=60s", timeout=90
    )
    shell(space, "keeper", "dd if=/dev/zero of=/dev/vda bs=1M count=16 conv=notrunc 2>/dev/null; sync")
    stop(machine)
    claim(space, "restored", "64Mi", volumeMode=mode, dataSource=source)
    claim(space, "clone", "64Mi", volumeMode=mode, dataSource={"kind": "PersistentVolumeClaim", "name": "restored"})
    for name in ("restored", "clone"):
        space.boot(with_claim(kernel_boot(f"from-{name}"), name))
        assert sum_of(space, f"from-{name}") == wanted, name
        space.kubectl("delete", "vmi", f"from-{name}", "--timeout=60s", timeout=90)


def test_a_claim_that_waits_is_made_for_its_machine(stored: Space) -> None:
    space = stored
    classes = space.engine.get("storageclass")["items"]
    waits = [each for each in classes if each.get("volumeBindingMode") == "WaitForFirstConsumer"]
    ours = [each["metadata"]["name"] for each in waits if each["provisioner"] == _PROVISIONER]
    claim(space, "late", "32Mi", storageClassName=ours[0])
    space.boot(with_claim(kernel_boot("first"), "late"))
    assert f"{32 * MIB // 512}\r" in shell(space, "first", "cat /sys/block/vda/size")
