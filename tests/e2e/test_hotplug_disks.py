"""Disks that come and go in a running guest, which writes to them: what counts is what the guest sees, and what is on
the claim afterwards."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from .conftest import Space
from .console import Console
from .engine import eventually, process_table
from .loopdisks import claim, loop_claim, skip_without_loop_devices
from .manifests import kernel_boot, with_volume
from .vms import Machine, conditions, vm

pytestmark = pytest.mark.e2e

MIB = 1 << 20


@pytest.fixture
def block(space: Space) -> Iterator[str]:
    """A claim that is a block device: a file of 32 MiB on a loop device of this machine, which all nodes share."""
    skip_without_loop_devices(space)
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as file:
        os.truncate(file.name, 32 * MIB)
        with loop_claim(space, "raw", file.name) as disk:
            yield disk.claim


@pytest.fixture
def storage(space: Space) -> Space:
    classes = space.engine.get("storageclass")["items"]
    default = "storageclass.kubernetes.io/is-default-class"
    if not any(each["metadata"].get("annotations", {}).get(default) == "true" for each in classes):
        pytest.skip("the cluster has no default StorageClass")
    return space


def start(space: Space, name: str, **changes: Any) -> Machine:
    manifest = vm(name, "Always", **changes)
    manifest["spec"]["template"]["spec"]["nodeSelector"] = on_one_node(space)
    space.apply(manifest)
    machine = Machine(space, name)
    machine.printable("Running")
    return machine


def volumes(space: Space, name: str) -> dict[str, dict[str, Any]]:
    """The hot-plugged volumes as the VMI's status shows them."""
    listed = space.vmi(name)["status"].get("volumeStatus", [])
    return {each["name"]: each for each in listed if "hotplugVolume" in each}


def phase(space: Space, name: str, volume: str, wanted: str = "Ready") -> dict[str, Any]:
    def check() -> dict[str, Any] | None:
        found = volumes(space, name).get(volume, {})
        return found if found.get("phase") == wanted else None

    try:
        return dict(eventually(check, within_s=60, what=f"volume {volume} of {name} is {wanted}"))
    except AssertionError as error:
        told = space.engine.run("virtctl", "-n", space.namespace, "explain", "vmi", name)
        raise AssertionError(f"{error}\n{told.stdout}{volumes(space, name)}") from None


def attachments(space: Space) -> list[dict[str, Any]]:
    pods = space.engine.get("-n", space.namespace, "pods", "-l", "kubevirt.io=hotplug-disk")["items"]
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def gone(space: Space, name: str, volume: str) -> None:
    eventually(lambda: volume not in volumes(space, name), within_s=60, what=f"no status of {volume} left")


def disk_of(console: Console, serial: str) -> str:
    """The guest's own name for the disk of that serial number; waits until the guest has it."""
    find = (
        "for d in /sys/block/[sv]d*; do "
        f"grep -q {serial} $d/serial $d/device/vpd_pg80 2>/dev/null && echo disk-is-${{d##*/}}-; done"
    )

    def check() -> str:
        found = re.search(r"disk-is-([a-z]+)-\r", console.shell(find))
        return found.group(1) if found else ""

    return str(eventually(check, within_s=60, what=f"a disk {serial} in the guest"))


def without(console: Console, disk: str) -> None:
    see = f"[ -e /sys/block/{disk} ] || echo gone-$((6*7))"
    eventually(lambda: "gone-42" in console.shell(see), within_s=60, what=f"no {disk} in the guest")


def fill(console: Console, disk: str, mib: int = 8) -> str:
    """Writes noise to the disk and gives its checksum."""
    console.shell(f"dd if=/dev/urandom of=/dev/{disk} bs=1M count={mib} conv=fsync 2>/dev/null", within_s=60)
    return checksum(console, disk, mib)


def checksum(console: Console, disk: str, mib: int = 8) -> str:
    console.shell("echo 3 > /proc/sys/vm/drop_caches")
    shown = console.shell(f"dd if=/dev/{disk} bs=1M count={mib} 2>/dev/null | md5sum", within_s=60)
    return str(re.search(r"[0-9a-f]{32}", shown)[0])  # type: ignore[index]


def edit(machine: Machine, name: str, source: dict[str, Any], disk: dict[str, Any] | None) -> None:
    """Puts a volume, and a disk unless there is a drive for it, into the VM's template."""
    spec = machine.get()["spec"]["template"]["spec"]
    spec.setdefault("volumes", []).append({"name": name, **source})
    disks = spec["domain"]["devices"].setdefault("disks", [])
    if disk is not None:
        disks.append({"name": name, **disk})
    _template(machine, spec)


def drop(machine: Machine, name: str, *, disk: bool = True) -> None:
    spec = machine.get()["spec"]["template"]["spec"]
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] != name]
    if disk:
        devices = spec["domain"]["devices"]
        devices["disks"] = [each for each in devices["disks"] if each["name"] != name]
    _template(machine, spec)


def _template(machine: Machine, spec: dict[str, Any]) -> None:
    change = {"volumes": spec["volumes"], "domain": {"devices": {"disks": spec["domain"]["devices"]["disks"]}}}
    patch = json.dumps({"spec": {"template": {"spec": change}}})
    machine.space.kubectl("patch", "vm", machine.name, "--type=merge", "-p", patch)


def plugged(name: str) -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name, "hotpluggable": True}}


def bytes_on(space: Space, claim: str, mib: int = 8) -> str:
    """The checksum of what is on a claim, as another machine finds it at its start."""
    name = f"reader-{claim}"
    manifest = kernel_boot(name)
    with_volume(manifest, "data", {"persistentVolumeClaim": {"claimName": claim}})
    space.boot(manifest)
    with space.console(name) as console:
        console.prompt()
        found = checksum(console, "vda", mib)
    space.kubectl("delete", "vmi", name, "--timeout=60s", timeout=90)
    return found


def test_two_disks_come_and_go_in_a_guest_that_writes_to_them(storage: Space, block: str) -> None:
    """One by a call, on SCSI, a file; one by the VM's template, on virtio, a block device."""
    space = storage
    file = claim(space, "file")
    machine = start(space, "busy")
    uid = machine.uid()
    with space.console("busy") as console:
        console.prompt()
        space.virtctl("addvolume", "busy", f"--volume-name={file}", "--serial=first", "--cache=none")
        phase(space, "busy", file)
        first = disk_of(console, "first")
        assert first.startswith("sd")
        edit(machine, "second", plugged(block), {"disk": {"bus": "virtio"}, "serial": "second"})
        phase(space, "busy", "second")
        second = disk_of(console, "second")
        assert second.startswith("vd")
        assert volumes(space, "busy")["second"]["target"] == second
        sums = {file: fill(console, first), block: fill(console, second)}
        eventually(lambda: len(attachments(space)) == 1, within_s=60, what="one attachment Pod for both")
        assert "RestartRequired" not in conditions(machine.status())
        space.virtctl("removevolume", "busy", f"--volume-name={file}")
        without(console, first)
        gone(space, "busy", file)
        assert checksum(console, second) == sums[block]
        drop(machine, "second")
        without(console, second)
        gone(space, "busy", "second")
        eventually(lambda: not attachments(space), within_s=60, what="no attachment Pod left")
    assert (machine.uid(), "RestartRequired" in conditions(machine.status())) == (uid, False)
    assert bytes_on(space, file) == sums[file]
    assert bytes_on(space, block) == sums[block]


def test_a_disk_that_was_added_is_there_after_a_restart_and_goes_then(storage: Space) -> None:
    """The claim need not be there when it is asked for; the guest gets it when it is."""
    space = storage
    machine = start(space, "late")
    edit(machine, "data", plugged("data"), {"disk": {"bus": "scsi"}, "serial": "data"})
    waiting = phase(space, "late", "data", "Pending")
    assert waiting["reason"] == "FailedPvcNotFound"
    assert "data" in space.virtctl("explain", "vmi", "late")
    claim(space, "data")
    phase(space, "late", "data")
    with space.console("late") as console:
        console.prompt()
        found = fill(console, disk_of(console, "data"))
    uid = machine.uid()
    machine.virtctl("restart")
    machine.restarted(uid)
    with space.console("late") as console:
        console.prompt()
        disk = disk_of(console, "data")
        assert checksum(console, disk) == found
        phase(space, "late", "data")
        space.virtctl("removevolume", "late", "--volume-name=data")
        without(console, disk)
    gone(space, "late", "data")
    eventually(lambda: not attachments(space), within_s=60, what="no attachment Pod left")


def test_a_volume_of_a_vmi_without_a_vm(storage: Space) -> None:
    space = storage
    claim(space, "loose")
    space.boot(kernel_boot("alone"))
    space.virtctl("addvolume", "alone", "--volume-name=loose", "--bus=virtio")
    with space.console("alone") as console:
        console.prompt()
        disk = disk_of(console, "loose")
        fill(console, disk, 1)
        space.virtctl("removevolume", "alone", "--volume-name=loose")
        without(console, disk)
    gone(space, "alone", "loose")


def test_the_medium_of_a_drive_changes(storage: Space) -> None:
    """Inserted, exchanged and ejected; the drive stays, and no restart is asked for."""
    space = storage
    for name in ("one", "two"):
        _medium(space, name)
    manifest = vm("drive", "Always")
    spec = manifest["spec"]["template"]["spec"]
    spec["domain"]["devices"]["disks"] = [{"name": "cd", "cdrom": {"bus": "scsi"}}]
    spec["nodeSelector"] = on_one_node(space)
    space.apply(manifest)
    machine = Machine(space, "drive")
    machine.printable("Running")
    with space.console("drive") as console:
        console.prompt()
        _reads(console, "")
        edit(machine, "cd", plugged("one"), None)
        _reads(console, "medium-one")
        _exchange(machine, "cd", plugged("two"))
        _reads(console, "medium-two")
        drop(machine, "cd", disk=False)
        _reads(console, "")
    eventually(lambda: not attachments(space), within_s=60, what="no attachment Pod left")
    assert "RestartRequired" not in conditions(machine.status())


def on_one_node(space: Space) -> dict[str, str]:
    """Two claims of which each is one node's own can be used together on the same node only."""
    nodes = sorted(node["metadata"]["name"] for node in space.engine.get("nodes")["items"])
    return {"kubernetes.io/hostname": nodes[0]}


def _medium(space: Space, name: str) -> None:
    """A claim with some bytes, written by a machine that has it from its start."""
    claim(space, name, "8Mi")
    manifest = kernel_boot(f"writer-{name}")
    with_volume(manifest, "data", {"persistentVolumeClaim": {"claimName": name}})
    manifest["spec"]["nodeSelector"] = on_one_node(space)
    space.boot(manifest)
    with space.console(f"writer-{name}") as console:
        console.prompt()
        console.shell(f"echo medium-{name} | dd of=/dev/vda bs=2048 conv=sync,notrunc,fsync 2>/dev/null")
    space.kubectl("delete", "vmi", f"writer-{name}", "--timeout=60s", timeout=90)


def _reads(console: Console, text: str) -> None:
    """What the guest finds in its drive: some text, or no medium."""
    look = "dd if=/dev/sr0 bs=2048 count=1 2>/dev/null | tr -d '\\0'; echo end-$((6*7))"

    def check() -> bool:
        shown = console.shell(look)
        return "end-42" in shown and ((text in shown) if text else "medium-" not in shown.split("end-42")[0])

    eventually(check, within_s=60, what=f"the guest reads {text or 'nothing'} in its drive")


def _exchange(machine: Machine, name: str, source: dict[str, Any]) -> None:
    spec = machine.get()["spec"]["template"]["spec"]
    spec["volumes"] = [{"name": name, **source} if each["name"] == name else each for each in spec["volumes"]]
    _template(machine, spec)


LINES = 300
#: Each line is written for itself and is on the disk before the next; what fails is noted.
_WRITER = (
    "(i=0; while [ $i -lt {lines} ]; do echo line-$i | dd of=/dev/{disk} bs=512 seek=$i conv=sync,notrunc,fsync "
    "2>/dev/null || echo $i >> /tmp/lost; i=$((i+1)); usleep 50000; done; echo end > /tmp/end) & true"
)


def processes_of(pod_uid: str) -> list[int]:
    """Of a Pod, by its cgroup."""
    words = (pod_uid, pod_uid.replace("-", "_"))
    found = []
    for pid, _args in process_table():
        try:
            text = Path(f"/proc/{pid}/cgroup").read_text()
        except OSError:
            continue
        if any(f"pod{word}" in text for word in words):
            found.append(pid)
    return found


@contextmanager
def at_prompt(space: Space, name: str) -> Iterator[Console]:
    """A console of its own for each stage: one that is open ends with the virt-handler behind it, and none is to be had
    before the next one has met the launcher."""
    with ExitStack() as stack:
        console = eventually(lambda: stack.enter_context(space.console(name)), within_s=60, what="a console")
        console.prompt()
        yield console


@pytest.mark.alone
def test_no_disk_and_no_write_is_lost_whoever_is_killed(storage: Space) -> None:
    """The attachment Pod's process and the Pod itself, and virt-handler, each with -9, while disks come, are used and
    go: the guest notices nothing."""
    space = storage
    for name in ("kept", "more"):
        claim(space, name)
    machine = start(space, "tough")
    uid, emulator = machine.uid(), space.engine.qemu_pid(space.namespace, "tough")
    space.virtctl("addvolume", "tough", "--volume-name=kept")
    space.engine.kill_component("virt-handler")
    phase(space, "tough", "kept")
    with at_prompt(space, "tough") as console:
        first = disk_of(console, "kept")
        console.shell(_WRITER.format(disk=first, lines=LINES))
    _kill_attachment(space)
    phase(space, "tough", "kept")
    space.virtctl("addvolume", "tough", "--volume-name=more", "--bus=virtio")
    eventually(lambda: "more" in volumes(space, "tough"), within_s=30, what="a status of the second volume")
    space.engine.kill_component("virt-handler")
    phase(space, "tough", "more")
    with at_prompt(space, "tough") as console:
        second = disk_of(console, "more")
        found = fill(console, second)
        for pod in attachments(space):
            space.kubectl("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")
        assert checksum(console, second) == found
        eventually(lambda: "end\r" in console.shell("cat /tmp/end"), within_s=120, what="all lines are written")
        assert "No such file" in console.shell("cat /tmp/lost")
        assert _lines(console, first) == LINES
    space.virtctl("removevolume", "tough", "--volume-name=more")
    space.engine.kill_component("virt-handler")
    with at_prompt(space, "tough") as console:
        without(console, second)
        gone(space, "tough", "more")
        space.virtctl("removevolume", "tough", "--volume-name=kept")
        without(console, first)
        gone(space, "tough", "kept")
    eventually(lambda: not attachments(space), within_s=60, what="no attachment Pod left")
    assert (machine.uid(), space.engine.qemu_pid(space.namespace, "tough")) == (uid, emulator)
    assert bytes_on(space, "more") == found


def _kill_attachment(space: Space) -> None:
    (pod,) = eventually(lambda: [p for p in attachments(space) if p["status"]["phase"] == "Running"], within_s=60)
    for pid in processes_of(pod["metadata"]["uid"]):
        if b"sigwait" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    name = pod["metadata"]["name"]
    eventually(
        lambda: [p for p in attachments(space) if p["metadata"]["name"] != name and p["status"]["phase"] == "Running"],
        within_s=60,
        what="another attachment Pod",
    )


def _lines(console: Console, disk: str) -> int:
    console.shell("echo 3 > /proc/sys/vm/drop_caches")
    shown = console.shell(f"dd if=/dev/{disk} bs=512 count={LINES} 2>/dev/null | tr -d '\\0' | grep -c line-")
    return int(re.findall(r"\n(\d+)\r", shown)[0])
