"""Backups of a real machine's disk: a chain of them holds what the disk held, byte for byte, at the instant of each."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.launcher.sandbox import Sandbox, eventually
from tests.functional.launcher.vmis import request, with_volume
from virt_core.apis.names import DIRECTORY_HOTPLUG, KEPT_BLOCKS, LAUNCHER_UID, VOLUME_KEPT_STATE
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root

SIZE = 24 << 20
AT = "/mnt"


def tracked() -> dict[str, Any]:
    body = with_volume({"persistentVolumeClaim": {"claimName": "data"}})
    sizes = {"capacity": {"storage": str(SIZE)}, "requests": {"storage": str(SIZE)}}
    info = {"claimName": "data", "volumeMode": "Filesystem", **sizes}
    body["status"] = {
        "volumeStatus": [{"name": "root", "persistentVolumeClaimInfo": info}],
        "changedBlockTracking": {"state": "Initializing"},
    }
    return body


def state(box: Sandbox) -> Path:
    return box.root / "private" / VOLUME_KEPT_STATE


def disk(box: Sandbox) -> Path:
    return box.root / "private/vmi-disks/root/disk.img"


def own(path: Path) -> None:
    subprocess.run(["chown", "-R", f"{LAUNCHER_UID}:{LAUNCHER_UID}", str(path)], check=True)


def launch(box: Sandbox, cache: list[pb.CacheFile]) -> None:
    for path in (state(box) / KEPT_BLOCKS, state(box) / "meta", disk(box).parent, target(box)):
        path.mkdir(parents=True, exist_ok=True)
    own(box.root / "private")
    box.serve_notify()
    box.start(at=AT)
    box.wait_ready()
    box.stub.SyncVMI(request(tracked(), cache), timeout=30)
    domain = box.stub.GetDomain(pb.GetDomainRequest()).domain
    assert list(domain.tracked_volumes) == ["root"]


def target(box: Sandbox) -> Path:
    return box.root / "private" / DIRECTORY_HOTPLUG / "target"


@pytest.fixture
def machine(box: Sandbox, capability_cache: list[pb.CacheFile]) -> Sandbox:
    launch(box, capability_cache)
    return box


@pytest.fixture
def later() -> Iterator[Sandbox]:
    sandbox = Sandbox()
    yield sandbox
    sandbox.close()


def write(box: Sandbox, pattern: int, at: int, length: int) -> None:
    """As the guest would, through its disk."""
    command = f'qemu-io -d {device_of(box)} "write -P {pattern} {at} {length}"'
    assert "rror" not in box.virsh("qemu-monitor-command", "ns_vm1", "--hmp", command)
    with open(disk(box), "rb") as file:
        file.seek(at)
        assert set(file.read(length)) == {pattern}


def device_of(box: Sandbox) -> str:
    shown = box.virsh("qemu-monitor-command", "ns_vm1", json.dumps({"execute": "query-block"}))
    return str(json.loads(shown)["return"][0]["qdev"])


def back_up(box: Sandbox, name: str, since: str = "", **wishes: Any) -> pb.Backup:
    order = {"name": name, "started": f"{name} now", "volume": "target", "directory": f"vm1/{name}", "checkpoint": name}
    box.stub.BeginBackup(pb.BeginBackupRequest(**order, since=since, **wishes), timeout=20)
    return box.handler.wait_for(lambda d: d.backup.name == name and d.backup.ended_us > 0).backup


def file_of(box: Sandbox, name: str) -> Path:
    return target(box) / "vm1" / name / f"{name}-root.qcow2"


def restored(box: Sandbox, where: Path, *names: str) -> bytes:
    """What a chain of backups holds, put together with qemu-img as a user would."""
    where.mkdir(exist_ok=True)
    below = None
    for name in names:
        copy = where / f"{name}.qcow2"
        shutil.copy(file_of(box, name), copy)
        if below is not None:
            run("rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", str(below), str(copy))
        below = copy
    run("convert", "-O", "raw", str(below), str(where / "raw"))
    return (where / "raw").read_bytes()


def run(*words: str) -> str:
    return subprocess.run(["qemu-img", *words], check=True, capture_output=True, text=True, timeout=60).stdout


def test_a_chain_holds_what_the_disk_held_at_each_instant(machine: Sandbox, tmp_path: Path) -> None:
    write(machine, 0x11, 1 << 20, 1 << 20)
    first = back_up(machine, "one")
    assert (first.failure, first.incremental, list(first.volumes), first.quiesce) == (
        "",
        False,
        ["root"],
        "QuiesceFailed",
    )
    was = disk(machine).read_bytes()
    write(machine, 0x22, 5 << 20, 65536)
    second = back_up(machine, "two", "one")
    assert (second.failure, second.incremental, second.broken) == ("", True, "")
    then = disk(machine).read_bytes()
    write(machine, 0x33, 1 << 20, 4096)
    assert back_up(machine, "three", "two", keep=["two"]).incremental
    assert was[1 << 20 : (1 << 20) + 4] == b"\x11" * 4
    assert then[5 << 20 : (5 << 20) + 4] == b"\x22" * 4
    assert restored(machine, tmp_path / "a", "one") == was
    assert restored(machine, tmp_path / "b", "one", "two") == then
    assert restored(machine, tmp_path / "c", "one", "two", "three") == disk(machine).read_bytes()
    # An increment holds what has changed and nothing else.
    mapped = json.loads(run("map", "--output=json", str(file_of(machine, "two"))))
    assert [(each["start"], each["length"]) for each in mapped if each["data"]] == [(5 << 20, 65536)]
    # Nobody builds on the first any more.
    assert set(machine.virsh("checkpoint-list", "ns_vm1", "--name").split()) == {"two", "three"}


def move_on(old: Sandbox, new: Sandbox) -> None:
    """What is on the claims, where the next Pod finds it."""
    for name in ("vmi-disks", VOLUME_KEPT_STATE, DIRECTORY_HOTPLUG):
        subprocess.run(["cp", "-a", str(old.root / "private" / name), str(new.root / "private")], check=True)


def end(box: Sandbox) -> None:
    box.stub.Kill(pb.KillRequest(), timeout=20)
    box.handler.wait_for(lambda d: d.state == pb.DOMAIN_STATE_SHUTOFF)


def test_a_chain_goes_on_after_a_restart(
    machine: Sandbox, later: Sandbox, capability_cache: list[pb.CacheFile], tmp_path: Path
) -> None:
    assert back_up(machine, "one").failure == ""
    write(machine, 0x44, 2 << 20, 65536)
    end(machine)
    move_on(machine, later)
    launch(later, capability_cache)
    write(later, 0x55, 9 << 20, 65536)
    again = back_up(later, "two", "one")
    assert (again.failure, again.incremental, again.broken) == ("", True, "")
    assert restored(later, tmp_path / "a", "one", "two") == disk(later).read_bytes()
    assert disk(later).read_bytes()[2 << 20 : (2 << 20) + 4] == b"\x44" * 4
    mapped = json.loads(run("map", "--output=json", str(file_of(later, "two"))))
    assert {each["start"] for each in mapped if each["data"]} == {2 << 20, 9 << 20}


def test_a_machine_that_was_killed_has_no_chain_and_says_so(
    machine: Sandbox, later: Sandbox, capability_cache: list[pb.CacheFile], tmp_path: Path
) -> None:
    assert back_up(machine, "one").failure == ""
    write(machine, 0x66, 3 << 20, 65536)
    os.kill(machine.qemu_pid, signal.SIGKILL)
    machine.handler.wait_for(lambda d: d.state in (pb.DOMAIN_STATE_SHUTOFF, pb.DOMAIN_STATE_CRASHED))
    move_on(machine, later)
    launch(later, capability_cache)
    again = back_up(later, "two", "one")
    assert (again.failure, again.incremental) == ("", False)
    assert "one cannot be built on" in again.broken
    assert restored(later, tmp_path / "a", "two") == disk(later).read_bytes()


def test_a_disk_that_somebody_changed_meanwhile_has_no_chain(
    machine: Sandbox, later: Sandbox, capability_cache: list[pb.CacheFile], tmp_path: Path
) -> None:
    assert back_up(machine, "one").failure == ""
    end(machine)
    move_on(machine, later)
    with open(disk(later), "r+b") as file:
        file.seek(7 << 20)
        file.write(b"changed elsewhere")
    launch(later, capability_cache)
    again = back_up(later, "two", "one")
    assert (again.failure, again.incremental) == ("", False)
    assert again.broken
    assert restored(later, tmp_path / "a", "two") == disk(later).read_bytes()


def test_a_target_that_is_full_is_named_and_left_clean(machine: Sandbox) -> None:
    write(machine, 0x77, 0, 16 << 20)
    assert back_up(machine, "one").failure == ""
    small = machine.root / "private" / DIRECTORY_HOTPLUG / "small"
    small.mkdir()
    options = f"size=4M,uid={LAUNCHER_UID},gid={LAUNCHER_UID},mode=750"
    pid = machine.pid
    subprocess.run(["nsenter", f"--mount=/proc/{pid}/ns/mnt", "mount", "-t", "tmpfs", "-o", options, "tmpfs",
                    f"{AT}/private/{DIRECTORY_HOTPLUG}/small"], check=True)  # fmt: skip
    order = {"name": "two", "started": "now", "volume": "small", "directory": "vm1/two", "checkpoint": "two"}
    machine.stub.BeginBackup(pb.BeginBackupRequest(**order, keep=["one"]), timeout=20)
    failed = machine.handler.wait_for(lambda d: d.backup.name == "two" and d.backup.ended_us > 0).backup
    assert "space" in failed.failure
    write(machine, 0x78, 1 << 20, 65536)
    assert back_up(machine, "three", "one").incremental  # The machine goes on, and so does the chain.


def test_an_aborted_backup_leaves_nothing(machine: Sandbox) -> None:
    machine.stub.AbortBackup(pb.AbortBackupRequest(name="none"), timeout=20)
    write(machine, 0x12, 0, 20 << 20)
    order = {"name": "one", "started": "now", "volume": "target", "directory": "vm1/one", "checkpoint": "one"}
    machine.stub.BeginBackup(pb.BeginBackupRequest(**order), timeout=20)
    machine.stub.AbortBackup(pb.AbortBackupRequest(name="one"), timeout=20)
    ended = machine.handler.wait_for(lambda d: d.backup.name == "one" and d.backup.ended_us > 0).backup
    if ended.failure:
        assert "aborted" in ended.failure
        assert not file_of(machine, "one").exists()
        eventually(lambda: machine.virsh("checkpoint-list", "ns_vm1", "--name").split() == [])
    else:
        assert file_of(machine, "one").exists()  # It was quicker.
