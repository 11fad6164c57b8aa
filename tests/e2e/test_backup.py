"""Backups of a guest that never stops writing: a chain of them, put together with qemu-img as a user would, holds what
the guest had at the instant of each. The chain goes on after a restart, and a broken one says so."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Configure, Space
from .engine import eventually
from .loopdisks import claim, skip_without_loop_devices
from .test_memory_dump import directory
from .test_snapshots import has_agent, is_frozen, mount, of_vm
from .test_storage import shell, start, stop, stored, with_claim  # noqa: F401
from .vms import Machine, vm

pytestmark = [pytest.mark.e2e, pytest.mark.patient]

GROUP = "backup.kubevirt.io/v1alpha1"
CHOSEN = {"virtualMachineLabelSelector": {"matchLabels": {"backup": "yes"}}}
#: Each file is named by its number and the checksum of its bytes, and `tick` says how many there are. A rename is whole
#: or not at all, so in a copy of one instant all of them are right.
WRITER = (
    "i=$(cat /mnt/tick 2>/dev/null || echo 0)",
    "while :; do i=$((i+1))",
    "dd if=/dev/urandom of=/mnt/new bs=8k count=1 2>/dev/null",
    "s=$(md5sum < /mnt/new | cut -c1-32)",
    "mv /mnt/new /mnt/f-$i-$s",
    "echo $i > /mnt/tick.new; mv /mnt/tick.new /mnt/tick; sync; usleep 100000; done",
)


@pytest.fixture
def tracking(stored: Space, configure: Configure) -> Space:  # noqa: F811
    """Machines with the label are tracked."""
    configure(
        {
            "developerConfiguration": {"featureGates": ["IncrementalBackup", "Snapshot"]},
            "changedBlockTrackingLabelSelectors": CHOSEN,
        }
    )
    return stored


def chosen(name: str, data: str) -> dict[str, Any]:
    manifest = with_claim(vm(name, "Manual"), data)
    manifest["metadata"]["labels"] = {"backup": "yes"}
    return manifest


def track(space: Space, name: str, machine: str) -> None:
    manifest = {"apiVersion": GROUP, "kind": "VirtualMachineBackupTracker", "metadata": {"name": name}}
    space.apply({**manifest, "spec": {"source": of_vm(machine)}})


def backup(name: str, source: dict[str, Any], claim_name: str, **spec: Any) -> dict[str, Any]:
    manifest = {"apiVersion": GROUP, "kind": "VirtualMachineBackup", "metadata": {"name": name}}
    return {**manifest, "spec": {"source": source, "pvcName": claim_name, **spec}}


def of_tracker(name: str) -> dict[str, Any]:
    return {"apiGroup": "backup.kubevirt.io", "kind": "VirtualMachineBackupTracker", "name": name}


def reaches(space: Space, name: str, check: Callable[[dict[str, Any]], bool], *, within_s: float = 120) -> Any:
    def look() -> Any:
        found = space.engine.get("-n", space.namespace, "vmbackup", name).get("status", {})
        told = {each["type"]: each for each in found.get("conditions", [])}
        assert check(told), json.dumps(found)
        return {**found, "told": told}

    return eventually(look, within_s=within_s, what=f"backup {name}")


def is_true(kind: str) -> Callable[[dict[str, Any]], bool]:
    return lambda told: told.get(kind, {}).get("status") == "True"


def done(space: Space, name: str) -> Any:
    over = reaches(space, name, lambda told: is_true("Complete")(told) or is_true("Failed")(told))
    assert "Complete" in over["told"], json.dumps(over)
    return over


def file_of(space: Space, claim_name: str, machine: str, name: str, volume: str = "data") -> Path:
    (found,) = (directory(space, claim_name) / machine).glob(f"{name}-2*/{name}-{volume}.qcow2")
    return found


def chain(where: Path, *files: Path) -> Path:
    """One raw image of the first and all that changed since."""
    where.mkdir()
    below: Path | None = None
    for file in files:
        copy = where / file.name
        shutil.copy(file, copy)
        if below is not None:
            run("qemu-img", "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", str(below), str(copy))
        below = copy
    run("qemu-img", "convert", "-O", "raw", str(below), str(where / "raw"))
    return where / "raw"


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=120).stdout


def whole(image: Path) -> int:
    """How far the guest was in the image, after all that it says it had written was found and right."""
    out = image.parent / "files"
    out.mkdir()
    run("debugfs", "-R", f"rdump / {out}", str(image))
    count = int((out / "tick").read_text())
    found = {int(path.name.split("-")[1]): path for path in out.glob("f-*")}
    assert set(range(1, count + 1)) <= set(found) <= set(range(1, count + 2))
    for path in found.values():
        assert hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() == path.name.split("-")[2]
    return count


def tick(space: Space, name: str) -> int:
    found = re.findall(r"tick-is-(\d+)-", shell(space, name, "echo tick-is-$(cat /mnt/tick)-"))
    return int(found[-1])


def begin_writing(space: Space, name: str) -> None:
    mount(space, name)
    with space.console(name) as console:
        console.prompt()
        for line in WRITER:
            console.shell(f"echo '{line}' >> /tmp/writer")
        console.shell("sh /tmp/writer >/dev/null 2>&1 & echo begun")


def tracked(machine: Machine, state: str = "Enabled") -> None:
    def look() -> bool:
        found = machine.status().get("changedBlockTracking", {})
        vmi = machine.space.vmi(machine.name)["status"].get("changedBlockTracking") if machine.has_vmi() else None
        assert found.get("state") == state, (found, vmi)
        return True

    eventually(look, within_s=20, what=f"changedBlockTracking is {state}")


@pytest.mark.parametrize("mode", ["Filesystem", "Block"])
def test_a_chain_of_backups_is_of_the_right_second(tracking: Space, tmp_path: Path, mode: str) -> None:
    space = tracking
    if mode == "Block":
        skip_without_loop_devices(space)
    claim(space, "origin", "64Mi", volumeMode=mode)
    claim(space, "shelf", "512Mi")
    space.apply(chosen("busy", "origin"))
    machine = Machine(space, "busy")
    start(machine, space, "busy")
    tracked(machine)
    has_agent(space, "busy")
    shell(space, "busy", "mke2fs /dev/vda >/dev/null 2>&1")
    begin_writing(space, "busy")
    track(space, "nightly", "busy")
    windows, files = [], []

    def save(name: str, kind: str, **spec: Any) -> Any:
        before = tick(space, "busy")
        space.apply(backup(name, of_tracker("nightly"), "shelf", **spec))
        over = done(space, name)
        assert over["type"] == kind, json.dumps(over)
        assert over["told"]["Quiesced"]["reason"] == "QuiesceSucceeded"
        assert [each["volumeName"] for each in over["includedVolumes"]] == ["data"]
        latest = space.engine.get("-n", space.namespace, "vmbackuptracker", "nightly")["status"]["latestCheckpoint"]
        assert latest["name"] == over["checkpointName"]
        eventually(lambda: not is_frozen(space, "busy"), within_s=30, what="the guest goes on")
        windows.append((before, tick(space, "busy")))
        files.append(file_of(space, "shelf", "busy", name))
        return over

    save("first", "Full")
    save("second", "Incremental")
    shell(space, "busy", "kill $(pgrep -f /tmp/writer); sync; umount /mnt")
    stop(machine)
    assert machine.status()["changedBlockTracking"]["state"] == "Enabled"
    start(machine, space, "busy")
    tracked(machine)
    has_agent(space, "busy")
    begin_writing(space, "busy")
    assert save("third", "Incremental")["told"]["Complete"]["reason"] == "Completed"
    for number, (before, after) in enumerate(windows):
        image = chain(tmp_path / str(number), *files[: number + 1])
        assert before <= whole(image) <= after
    assert os.stat(files[1]).st_blocks < os.stat(files[0]).st_blocks / 2
    save("forced", "Full", forceFullBackup=True)
    before, after = windows[-1]
    assert before <= whole(chain(tmp_path / "forced", files[-1])) <= after
    # Nothing of it is left in the machine.
    eventually(lambda: not space.vmi("busy")["spec"].get("utilityVolumes"), within_s=30, what="no utility volume")
    told = space.engine.run("virtctl", "-n", space.namespace, "explain", "vmbackup", "third")
    assert "nightly" in told.stdout, told.stderr


def test_a_chain_that_a_killed_machine_broke_begins_anew(tracking: Space, tmp_path: Path) -> None:
    space = tracking
    claim(space, "origin", "32Mi")
    claim(space, "shelf", "256Mi")
    space.apply(chosen("victim", "origin"))
    machine = Machine(space, "victim")
    start(machine, space, "victim")
    tracked(machine)
    track(space, "nightly", "victim")
    space.apply(backup("first", of_tracker("nightly"), "shelf", skipQuiesce=True))
    assert done(space, "first")["told"]["Quiesced"]["reason"] == "QuiesceSkipped"
    os.kill(space.engine.qemu_pid(space.namespace, "victim"), signal.SIGKILL)
    eventually(lambda: machine.status().get("printableStatus") == "Stopped", within_s=60, what="it has ended")
    start(machine, space, "victim")
    tracked(machine)
    shell(space, "victim", "yes written | dd of=/dev/vda bs=1M count=2 2>/dev/null; sync")
    space.apply(backup("second", of_tracker("nightly"), "shelf", skipQuiesce=True))
    over = done(space, "second")
    assert (over["type"], over["told"]["Complete"]["reason"]) == ("Full", "CompletedWithWarning")
    assert "cannot be built on" in over["told"]["Complete"]["message"]
    events = space.engine.get("-n", space.namespace, "events")["items"]
    assert "CheckpointRedefinitionFailed" in {each["reason"] for each in events}
    image = chain(tmp_path / "a", file_of(space, "shelf", "victim", "second"))
    assert image.read_bytes()[:16] == b"written\nwritten\n"


def test_what_waits_what_fails_and_what_is_refused(tracking: Space) -> None:
    space = tracking
    claim(space, "origin", "32Mi")
    claim(space, "tiny", "4Mi")
    with_other = chosen("plain", "origin")
    del with_other["metadata"]["labels"]
    space.apply(with_other)
    assert "Pull is not built yet" in space.refuse(backup("pull", of_vm("plain"), "tiny", mode="Pull"))
    space.apply(backup("waits", of_vm("plain"), "nowhere"))
    told = reaches(space, "waits", lambda told: "does not run" in told.get("Progressing", {}).get("message", ""))
    assert told["told"]["Progressing"]["reason"] == "Initializing"
    assert "'waits' is already backing up" in space.refuse(backup("twice", of_vm("plain"), "tiny"))
    machine = Machine(space, "plain")
    start(machine, space, "plain")
    reaches(space, "waits", lambda told: "are not tracked" in told["Progressing"]["message"])
    space.kubectl("label", "vm", "plain", "backup=yes")
    tracked(machine, "PendingRestart")
    stop(machine)
    start(machine, space, "plain")
    tracked(machine)
    reaches(space, "waits", lambda told: "PVC nowhere does not exist" in told["Progressing"]["message"])
    space.kubectl("delete", "vmbackup", "waits", "--timeout=30s")
    space.apply(backup("late", of_vm("plain"), "nowhere", ttlDuration="2s"))
    late = reaches(space, "late", is_true("Failed"))
    assert "it could not begin in time: PVC nowhere does not exist" in late["told"]["Failed"]["message"]
    space.kubectl("label", "vm", "plain", "backup-")
    tracked(machine, "PendingRestart")
    stop(machine)
    tracked(machine, "Disabled")
