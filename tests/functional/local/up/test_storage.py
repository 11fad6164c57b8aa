"""Storage of virt-local with a real kubectl and real Pods: volumes, growth, snapshots, copies, and kills in between."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from virt_local.storage import loops

from .rig import HOST_IMAGE, Rig, eventually

pytestmark = pytest.mark.root

MIB = 1 << 20


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig("stor", 187, nodes=1)
    done = rig.up()
    assert done.returncode == 0, done.stderr
    try:
        yield rig
    finally:
        down = rig.local("down", "--purge", "--grace", "5")
        assert down.returncode == 0, down.stderr
        assert rig.leftovers() == []
        assert not loops_of(rig)


def loops_of(rig: Rig) -> list[str]:
    found = Path("/sys/block").glob("loop*/loop/backing_file")
    return [path.parts[3] for path in found if path.read_text().startswith(str(rig.data))]


def needs_loops() -> None:
    try:
        loops.check()
    except loops.NoLoopDevices as error:
        pytest.skip(str(error))


def claim(rig: Rig, name: str, size: str = "8Mi", **spec: Any) -> None:
    wish = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    obj = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": wish}
    rig.kubectl("apply", "-f", "-", stdin=json.dumps(obj))


def snapshot(rig: Rig, name: str, source: str) -> None:
    spec = {"source": {"persistentVolumeClaimName": source}}
    kind = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot"}
    rig.kubectl("apply", "-f", "-", stdin=json.dumps({**kind, "metadata": {"name": name}, "spec": spec}))


def get(rig: Rig, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(rig.kubectl("get", kind, name, "-o", "json"))
    return found


def bound(rig: Rig, name: str, within_s: float = 30.0) -> dict[str, Any]:
    eventually(lambda: get(rig, "pvc", name)["status"]["phase"] == "Bound", within_s)
    return get(rig, "pvc", name)


def ready(rig: Rig, name: str) -> dict[str, Any]:
    eventually(lambda: get(rig, "vs", name).get("status", {}).get("readyToUse"), 30.0)
    return get(rig, "vs", name)


def run(rig: Rig, name: str, script: str, claim: str, *, device: bool = False) -> str:
    """What a Pod with the claim prints; the claim is /v, or the device /dev/x."""
    container: dict[str, Any] = {"name": "c", "image": HOST_IMAGE, "command": ["sh", "-c", script]}
    if device:
        container["volumeDevices"] = [{"name": "v", "devicePath": "/dev/x"}]
    else:
        container["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]
    spec = {"containers": [container], "volumes": volumes, "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    rig.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    eventually(lambda: get(rig, "pod", name)["status"]["phase"] in ("Succeeded", "Failed"), 60.0)
    printed = rig.kubectl("logs", name)
    assert get(rig, "pod", name)["status"]["phase"] == "Succeeded", printed
    rig.kubectl("delete", "pod", name, "--timeout=30s")
    return printed


def events(rig: Rig, name: str) -> str:
    return rig.kubectl("get", "events", "--field-selector", f"involvedObject.name={name}")


def directory(rig: Rig, name: str) -> Path:
    volume = bound(rig, name)["spec"]["volumeName"]
    return Path(get(rig, "pv", volume)["spec"]["hostPath"]["path"])


def test_classes_and_kinds_are_there(rig: Rig) -> None:
    classes = rig.kubectl("get", "storageclass")
    assert "hostpath (default)" in classes
    assert "WaitForFirstConsumer" in classes
    assert "hostpath" in rig.kubectl("get", "volumesnapshotclass")


def test_a_block_claim_is_a_device_while_a_pod_uses_it(rig: Rig) -> None:
    needs_loops()
    claim(rig, "raw", "4Mi", volumeMode="Block")
    assert bound(rig, "raw")["status"]["capacity"] == {"storage": "4Mi"}
    assert loops_of(rig) == []
    script = "echo on-a-device | dd of=/dev/x conv=notrunc,fsync 2>/dev/null; blockdev --getsize64 /dev/x"
    assert run(rig, "write", script, "raw", device=True).strip() == str(4 * MIB)
    eventually(lambda: loops_of(rig) == [])
    assert "on-a-device" in run(rig, "read", "head -c 11 /dev/x", "raw", device=True)
    rig.kubectl("delete", "pvc", "raw", "--timeout=30s")
    eventually(lambda: not list((rig.data / "volumes").glob("pvc-*.img")))


def test_a_claim_grows_while_it_is_used(rig: Rig) -> None:
    needs_loops()
    claim(rig, "grows", "4Mi", volumeMode="Block")
    bound(rig, "grows")
    container = {
        "name": "c",
        "image": HOST_IMAGE,
        "command": ["sh", "-c", "until [ $(blockdev --getsize64 /dev/x) = 8388608 ]; do sleep 0.1; done; echo grown"],
        "volumeDevices": [{"name": "v", "devicePath": "/dev/x"}],
    }
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "grows"}}]
    spec = {"containers": [container], "volumes": volumes, "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "watcher"}, "spec": spec}
    rig.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    rig.kubectl("wait", "--for=condition=Ready", "pod/watcher", "--timeout=40s")
    claim(rig, "grows", "8Mi", volumeMode="Block")
    eventually(lambda: get(rig, "pvc", "grows")["status"]["capacity"]["storage"] == "8Mi")
    eventually(lambda: get(rig, "pod", "watcher")["status"]["phase"] == "Succeeded")
    assert "VolumeResizeSuccessful" in events(rig, "grows")
    refused = rig_fails(rig, "patch", "pvc", "grows", "-p", '{"spec":{"resources":{"requests":{"storage":"1Mi"}}}}')
    assert "field can not be less than status.capacity" in refused
    rig.kubectl("delete", "pod", "watcher", "--timeout=30s")
    rig.kubectl("delete", "pvc", "grows", "--timeout=30s")


def test_a_claim_that_got_more_than_it_asked_for_can_be_changed(rig: Rig) -> None:
    claim(rig, "odd", str((4 << 20) + 1))
    bound(rig, "odd")
    rig.kubectl("annotate", "pvc", "odd", "note=yes")
    assert get(rig, "pvc", "odd")["metadata"]["annotations"]["note"] == "yes"
    rig.kubectl("delete", "pvc", "odd", "--timeout=30s")


def rig_fails(rig: Rig, *args: str) -> str:
    done = subprocess.run(["kubectl", *args], env=rig.env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    return done.stderr


def test_a_claim_waits_for_its_first_consumer(rig: Rig) -> None:
    claim(rig, "late", storageClassName="hostpath-wait")
    eventually(lambda: "WaitForFirstConsumer" in events(rig, "late"))
    assert get(rig, "pvc", "late")["status"]["phase"] == "Pending"
    assert run(rig, "first", "echo here > /v/x; cat /v/x", "late") == "here\n"
    assert get(rig, "pvc", "late")["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "node1"
    rig.kubectl("delete", "pvc", "late", "--timeout=30s")


def test_what_the_disk_cannot_hold_is_refused(rig: Rig) -> None:
    claim(rig, "huge", "1Pi")
    eventually(lambda: "the disk has no room for 1Pi" in rig.kubectl("describe", "pvc", "huge"))
    assert "ProvisioningFailed" in events(rig, "huge")
    assert get(rig, "pvc", "huge")["status"]["phase"] == "Pending"
    rig.kubectl("delete", "pvc", "huge", "--timeout=30s")


def test_read_write_once_pod_is_for_one_pod(rig: Rig) -> None:
    claim(rig, "alone", accessModes=["ReadWriteOncePod"])
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "alone"}}
    rig.run_pod("holder", "exec sleep 600", volumes=[volume])
    container = {"name": "c", "image": HOST_IMAGE, "command": ["true"]}
    second = {"containers": [container], "volumes": [volume], "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "second"}, "spec": second}
    rig.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    eventually(lambda: "ReadWriteOncePod" in rig.kubectl("describe", "pod", "second"))
    rig.kubectl("delete", "pod", "holder", "--timeout=40s")
    eventually(lambda: get(rig, "pod", "second")["status"]["phase"] == "Succeeded", 40.0)
    rig.kubectl("delete", "pod", "second", "--timeout=30s")
    rig.kubectl("delete", "pvc", "alone", "--timeout=30s")


def test_snapshot_restore_and_clone(rig: Rig) -> None:
    claim(rig, "origin")
    run(rig, "fill", "echo one > /v/x; ln -s /etc/shadow /v/trap; chown 107:107 /v/x", "origin")
    snapshot(rig, "kept", "origin")
    taken = ready(rig, "kept")
    assert taken["status"]["restoreSize"] == "8Mi"
    assert "hostpath" in rig.kubectl("get", "vs", "kept")
    assert "SnapshotReady" in events(rig, "kept")
    content = get(rig, "volumesnapshotcontent", taken["status"]["boundVolumeSnapshotContentName"])
    assert content["status"]["readyToUse"]
    run(rig, "change", "echo two > /v/x", "origin")
    group = "snapshot.storage.k8s.io"
    claim(rig, "small", "4Mi", dataSource={"apiGroup": group, "kind": "VolumeSnapshot", "name": "kept"})
    eventually(lambda: "must be at least 8Mi" in rig.kubectl("describe", "pvc", "small"))
    rig.kubectl("delete", "pvc", "small", "--timeout=30s")
    claim(rig, "restored", dataSource={"apiGroup": group, "kind": "VolumeSnapshot", "name": "kept"})
    claim(rig, "clone", "9Mi", dataSourceRef={"kind": "PersistentVolumeClaim", "name": "origin"})
    assert run(rig, "old", "cat /v/x; readlink /v/trap; stat -c %u /v/x", "restored") == "one\n/etc/shadow\n107\n"
    assert run(rig, "new", "cat /v/x", "clone") == "two\n"
    assert bound(rig, "clone")["status"]["capacity"] == {"storage": "9Mi"}
    eventually(lambda: not [f for f in get(rig, "pvc", "origin")["metadata"]["finalizers"] if "cloning" in f])
    rig.kubectl("delete", "vs", "kept", "--timeout=30s")
    assert "No resources" in rig.kubectl("get", "volumesnapshotcontent") or not rig.kubectl("get", "vsc", "-o", "name")
    assert list((rig.data / "volumes" / ".snapshots").iterdir()) == []
    rig.kubectl("delete", "pvc", "origin", "restored", "clone", "--timeout=30s")
    eventually(lambda: not list((rig.data / "volumes").glob("pvc-*")))


def test_the_example(rig: Rig) -> None:
    file = str(Path(__file__).parents[4] / "examples" / "claim-saved-and-copied.yaml")
    rig.kubectl("apply", "-f", file)
    for name in ("first", "restored", "copied"):
        bound(rig, name)
    rig.kubectl("delete", "-f", file, "--timeout=60s")


def test_a_retained_volume_keeps_its_bytes(rig: Rig) -> None:
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "keep"}}
    rules = {"provisioner": "virt-local/hostpath", "reclaimPolicy": "Retain"}
    rig.kubectl("apply", "-f", "-", stdin=json.dumps({**kind, **rules}))
    claim(rig, "mine", storageClassName="keep")
    place = directory(rig, "mine")
    run(rig, "scribe", "echo mine > /v/x", "mine")
    volume = get(rig, "pvc", "mine")["spec"]["volumeName"]
    rig.kubectl("delete", "pvc", "mine", "--timeout=30s")
    eventually(lambda: get(rig, "pv", volume)["status"]["phase"] == "Released")
    assert (place / "x").read_text() == "mine\n"
    rig.kubectl("delete", "pv", volume, "--timeout=30s")
    assert (place / "x").read_text() == "mine\n"
    refused = rig_fails(rig, "get", "pv", volume)
    assert "not found" in refused


def test_a_claim_does_not_take_anothers_volume(rig: Rig) -> None:
    claim(rig, "victim")
    volume = bound(rig, "victim")["spec"]["volumeName"]
    claim(rig, "thief", volumeName=volume)
    eventually(lambda: "already bound to a different claim" in rig.kubectl("describe", "pvc", "thief"))
    assert get(rig, "pv", volume)["spec"]["claimRef"]["name"] == "victim"
    rig.kubectl("delete", "pvc", "thief", "victim", "--timeout=30s")


def test_a_claim_that_is_written_all_the_time_waits_for_rest(rig: Rig) -> None:
    """Two files change at once, so no file system has both at one instant; the snapshot says so until they rest."""
    claim(rig, "restless", "96Mi")
    # Much to copy and several who write: on a busy machine one alone rests for longer than a copy takes.
    write = "while :; do i=$((i+1)); echo $i > /v/a$n; echo $i > /v/b$n; done"
    script = f"head -c 67108864 /dev/urandom > /v/much; for n in 1 2 3; do {write} & done; touch /v/b; wait"
    container = {"name": "c", "image": HOST_IMAGE, "command": ["sh", "-c", script]}
    mounted = {**container, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "restless"}}]
    rig.run_pod("writer", "", containers=[mounted], volumes=volumes)
    place = directory(rig, "restless")
    eventually((place / "b").exists)
    snapshot(rig, "patient", "restless")
    eventually(lambda: "freeze or stop" in rig.kubectl("get", "vs", "patient", "-o", "jsonpath={.status.error}"), 60)
    assert "SnapshotCreationFailed" in events(rig, "patient")
    assert not list((rig.data / "volumes" / ".snapshots").iterdir())
    rig.kubectl("delete", "pod", "writer", "--timeout=40s")
    done = ready(rig, "patient")
    assert "error" not in done["status"]
    rig.kubectl("delete", "vs", "patient", "--timeout=30s")
    rig.kubectl("delete", "pvc", "restless", "--timeout=30s")


def test_a_retained_snapshot_is_bound_again(rig: Rig) -> None:
    kind = {"apiVersion": "snapshot.storage.k8s.io/v1"}
    keep = {**kind, "kind": "VolumeSnapshotClass", "metadata": {"name": "keep"}, "driver": "virt-local/hostpath"}
    rig.kubectl("apply", "-f", "-", stdin=json.dumps({**keep, "deletionPolicy": "Retain"}))
    claim(rig, "first")
    run(rig, "pen", "echo kept > /v/x", "first")
    spec = {"source": {"persistentVolumeClaimName": "first"}, "volumeSnapshotClassName": "keep"}
    wish = {**kind, "kind": "VolumeSnapshot", "metadata": {"name": "gone"}, "spec": spec}
    rig.kubectl("apply", "-f", "-", stdin=json.dumps(wish))
    old = get(rig, "vsc", ready(rig, "gone")["status"]["boundVolumeSnapshotContentName"])
    rig.kubectl("delete", "vs", "gone", "--timeout=30s")
    rig.kubectl("delete", "pvc", "first", "--timeout=30s")
    rig.kubectl("delete", "vsc", old["metadata"]["name"], "--timeout=30s")
    source = {"snapshotHandle": old["status"]["snapshotHandle"]}
    ref = {"name": "again", "namespace": "default"}
    parts = {"deletionPolicy": "Delete", "driver": "virt-local/hostpath", "source": source, "volumeSnapshotRef": ref}
    content = {**kind, "kind": "VolumeSnapshotContent", "metadata": {"name": "by-hand"}, "spec": parts}
    rig.kubectl("apply", "-f", "-", stdin=json.dumps(content))
    again = {"source": {"volumeSnapshotContentName": "by-hand"}}
    rig.kubectl("apply", "-f", "-", stdin=json.dumps({**wish, "metadata": {"name": "again"}, "spec": again}))
    assert ready(rig, "again")["status"]["restoreSize"] == "8Mi"
    from_it = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "again"}
    claim(rig, "second", dataSource=from_it)
    assert run(rig, "eye", "cat /v/x", "second") == "kept\n"
    rig.kubectl("delete", "vs", "again", "--timeout=30s")
    rig.kubectl("delete", "pvc", "second", "--timeout=30s")
    assert list((rig.data / "volumes" / ".snapshots").iterdir()) == []


def _asked(rig: Rig) -> bool:
    """Before, or just when."""
    return True


def _begun(rig: Rig) -> bool:
    return any((rig.data / "volumes" / ".new").iterdir())


def _made(rig: Rig) -> bool:
    return any((rig.data / "volumes" / ".snapshots").iterdir())


@contextmanager
def killed_at(rig: Rig, moment: Callable[[Rig], bool]) -> Iterator[None]:
    """The process with the controllers dies at a moment of what is done inside."""
    victim, came = rig.pids()["controllers"], threading.Event()

    def wait_and_kill() -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if moment(rig):
                os.kill(victim, signal.SIGKILL)
                came.set()
                return

    thread = threading.Thread(target=wait_and_kill, daemon=True)
    thread.start()
    yield
    thread.join(40)
    assert came.is_set(), "the moment never came"


@pytest.mark.parametrize("moment", [_asked, _begun, _made])
def test_a_copy_is_whole_whenever_its_maker_is_killed(rig: Rig, moment: Callable[[Rig], bool]) -> None:
    """The process that copies is killed: the clone and the snapshot are there in the end, byte for byte."""
    name = f"whole{moment.__name__.replace('_', '-')}"
    claim(rig, name, "96Mi")
    place = directory(rig, name)
    with open(place / "disk.img", "wb") as disk:
        for number in range(64):
            disk.write(hashlib.sha256(str(number).encode()).digest() * (MIB // 32))
    (place / "other").write_text("small")
    wanted = hashlib.sha256((place / "disk.img").read_bytes()).hexdigest()
    with killed_at(rig, moment):
        claim(rig, f"{name}-copy", "96Mi", dataSourceRef={"kind": "PersistentVolumeClaim", "name": name})
        snapshot(rig, name, name)
    copy = directory_in_time(rig, f"{name}-copy")
    assert hashlib.sha256((copy / "disk.img").read_bytes()).hexdigest() == wanted
    assert (copy / "other").read_text() == "small"
    ready(rig, name)
    handle = next((rig.data / "volumes" / ".snapshots").iterdir())
    assert hashlib.sha256((handle / "data" / "disk.img").read_bytes()).hexdigest() == wanted
    rig.kubectl("delete", "vs", name, "--timeout=30s")
    rig.kubectl("delete", "pvc", name, f"{name}-copy", "--timeout=30s")
    eventually(lambda: not place.exists() and not copy.exists(), 30.0)
    assert list((rig.data / "volumes" / ".new").iterdir()) == []


def directory_in_time(rig: Rig, name: str) -> Path:
    volume = bound(rig, name, 60.0)["spec"]["volumeName"]
    return Path(get(rig, "pv", volume)["spec"]["hostPath"]["path"])
