"""Disks that leave: a claim of a stopped VM is exported, downloaded, broken off, gone on with, and imported again."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import socket
import ssl
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from framework.waiting import eventually as soon

from .conftest import Space
from .engine import eventually
from .loopdisks import skip_without_loop_devices
from .manifests import with_volume
from .test_snapshots import saved, snapshot
from .test_storage import stored  # noqa: F401
from .vms import vm

pytestmark = [pytest.mark.e2e, pytest.mark.patient]

MIB = 1 << 20


def claim(name: str, size: str = "64Mi", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec},
    }


def export(name: str, kind: str, source: str, **spec: Any) -> dict[str, Any]:
    groups = {"PersistentVolumeClaim": "", "VirtualMachine": "kubevirt.io"}
    reference = {"kind": kind, "name": source, "apiGroup": groups[kind]}
    return {
        "apiVersion": "export.kubevirt.io/v1",
        "kind": "VirtualMachineExport",
        "metadata": {"name": name},
        "spec": {"source": reference, **spec},
    }


def status(space: Space, name: str) -> Any:
    return space.engine.get("-n", space.namespace, "vmexport", name).get("status", {})


def phase(space: Space, name: str, wanted: str, *, within_s: float = 90) -> Any:
    def check() -> Any:
        found = status(space, name)
        assert found.get("phase") == wanted, found
        return found

    return eventually(check, within_s=within_s, what=f"export {name} in phase {wanted}")


def content(space: Space, name: str) -> Path:
    """Where the claim's files are on this machine."""
    volume = space.engine.get("-n", space.namespace, "pvc", name)["spec"]["volumeName"]
    spec = space.engine.get("pv", volume)["spec"]
    path = Path((spec.get("hostPath") or spec.get("local") or {}).get("path", "/nonexistent"))
    if not path.exists():
        pytest.skip("the claims of this cluster are not on this machine")
    return path


def uploaded(space: Space, name: str, tmp_path: Path, *options: str, size: int = 40 * MIB) -> bytes:
    """A DataVolume with noise, zeros and more noise in it."""
    data = os.urandom(size // 4) + bytes(size // 2) + os.urandom(size // 4 - 12345) + bytes(12345)
    file = tmp_path / f"{name}.img"
    file.write_bytes(data)
    space.virtctl("image-upload", "dv", name, "--image-path", str(file), "--force-bind", *options, timeout=120)
    return data


def test_a_claim_is_downloaded_raw_and_packed_with_the_token_only(space: Space, tmp_path: Path) -> None:
    """What was uploaded comes back byte for byte; who shows no token, or another one, gets nothing."""
    data = uploaded(space, "disk", tmp_path)
    space.apply(export("out", "PersistentVolumeClaim", "disk"))
    found = phase(space, "out", "Ready")
    formats = {each["format"] for each in found["links"]["internal"]["volumes"][0]["formats"]}
    assert (formats, found["serviceName"], found["tokenSecretRef"]) == (
        {"raw", "gzip"},
        "virt-export-out",
        "export-token-out",
    )
    raw, packed = tmp_path / "raw", tmp_path / "packed.gz"
    said = space.virtctl("vmexport", "download", "out", "--output", str(raw), "--format", "raw", "--port-forward")
    assert hashlib.sha256(data).hexdigest() in said
    assert raw.read_bytes() == data
    assert raw.stat().st_blocks * 512 < len(data), "zeros are left out"
    outside = space.engine.run(
        "virtctl", "-n", space.namespace, "vmexport", "download", "out", "--output", str(packed), timeout=120
    )
    assert outside.returncode == 0, outside.stderr
    assert ("external" in outside.stderr) is ("external" in found["links"])
    assert gzip.decompress(packed.read_bytes()) == data
    assert not [each.name for each in tmp_path.iterdir() if ".part" in each.name]
    assert reasons(space, "out") >= {"ExporterPodCreated", "ServiceCreated", "SecretCreated"}
    attack(space, found)
    space.virtctl("vmexport", "delete", "out")
    eventually(lambda: pods(space) == [], within_s=60, what="the exporter is gone")
    assert "does not exist" in space.virtctl("vmexport", "delete", "out")


def attack(space: Space, found: Any) -> None:
    """From this machine, which reaches Pods, with and without the token."""
    pod = space.engine.get("-n", space.namespace, "pod", "virt-export-out")
    context = ssl.create_default_context(cadata=found["links"]["internal"]["cert"])
    encoded = space.engine.get("-n", space.namespace, "secret", found["tokenSecretRef"])["data"]["token"]
    token = base64.b64decode(encoded).decode()

    def ask(path: str, **headers: str) -> int:
        plain = socket.create_connection((pod["status"]["podIP"], 8443), 10)
        with context.wrap_socket(plain, server_hostname=f"virt-export-out.{space.namespace}.svc") as tls:
            lines = [f"GET {path} HTTP/1.1", "Host: x", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items())]
            tls.sendall("\r\n".join([*lines, "", ""]).encode())
            return int(tls.recv(12)[9:12])

    assert ask("/volumes/disk/disk.img", x_kubevirt_export_token=token, Range="bytes=0-0") == 206
    assert ask("/volumes/disk/disk.img") == 401
    assert ask("/volumes/disk/disk.img", x_kubevirt_export_token="wrong") == 401
    assert ask(f"/volumes/disk/disk.img?x-kubevirt-export-token={token}") == 401
    assert ask("/volumes/../../etc/passwd", x_kubevirt_export_token=token) == 404
    container = pod["spec"]["containers"][0]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert all(each["readOnly"] for each in container["volumeMounts"])
    assert pod["spec"]["automountServiceAccountToken"] is False
    if "external" in found["links"]:
        attack_from_outside(found["links"]["external"], token)


def attack_from_outside(link: Any, token: str) -> None:
    """By virt-api, with the token and without anything else."""
    url = next(each["url"] for each in link["volumes"][0]["formats"] if each["format"] == "raw")
    context = ssl.create_default_context(cadata=link["cert"])

    def ask(address: str, **headers: str) -> int:
        sent = {key.replace("_", "-"): value for key, value in headers.items()}
        try:
            with urllib.request.urlopen(urllib.request.Request(address, headers=sent), context=context) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    assert ask(url, x_kubevirt_export_token=token, Range="bytes=0-9") == 206
    assert ask(url) == 401
    assert ask(url, x_kubevirt_export_token="wrong") == 401
    assert ask(f"{url}?x-kubevirt-export-token={token}") == 401
    assert ask(url.replace("/out/", "/other/"), x_kubevirt_export_token=token) == 404
    assert ask(url.replace("/volumes/", "/%2e%2e/"), x_kubevirt_export_token=token) == 404


@contextmanager
def running(space: Space, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env=space.engine.env(), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def test_a_download_that_is_killed_goes_on(space: Space, tmp_path: Path) -> None:
    """virtctl is killed in the middle, then the exporter: no byte comes twice, and the disk is whole."""
    data = uploaded(space, "disk", tmp_path, size=192 * MIB)
    space.virtctl("vmexport", "create", "out", "--pvc", "disk", "--ttl", "1h")
    phase(space, "out", "Ready")
    raw, state = tmp_path / "raw", tmp_path / "raw.part.state"
    command = ["virtctl", "-n", space.namespace, "vmexport", "download", "out", "--output", str(raw), "--format", "raw"]
    with running(space, command) as first:
        soon(state.exists)
        first.kill()
    sure = json.loads(state.read_text())["pieces"]
    assert 0 < sure < 12
    assert not raw.exists()
    with running(space, command) as second:
        soon(lambda: json.loads(state.read_text())["pieces"] > sure, within_s=60)
        space.kubectl("delete", "pod", "virt-export-out", "--grace-period=0", "--wait=false")
        assert second.wait(120) == 0
    assert hashlib.sha256(raw.read_bytes()).digest() == hashlib.sha256(data).digest()
    assert not state.exists()


def test_a_stopped_vm_leaves_and_comes_back(space: Space, tmp_path: Path) -> None:
    """Its manifests, as they are, make it anew: the disk is downloaded from the export by an importer."""
    data = uploaded(space, "root", tmp_path)
    space.apply(leaver())
    come_back(space, "--vm", "leaver")
    assert (content(space, "again") / "disk.img").read_bytes() == data
    assert space.engine.get("-n", space.namespace, "vm", "comer")["spec"]["runStrategy"] == "Halted"


def leaver() -> dict[str, Any]:
    """A stopped VM with the disk `root`."""
    machine = vm("leaver", "Halted")
    machine["spec"]["template"]["spec"]["volumes"] = [{"name": "root", "dataVolume": {"name": "root"}}]
    return machine


def come_back(space: Space, *source: str) -> None:
    """The manifests of the export `out` make the VM `comer` with the disk `again`; the URL keeps the name of the volume
    that is exported."""
    # Over the API server the links are those that Pods of this cluster use.
    way = ("--manifest", "--include-secret", "--port-forward")
    text = space.virtctl("vmexport", "download", "out", *source, *way, timeout=150)
    documents = list(yaml.safe_load_all(text))
    assert [each["kind"] for each in documents] == ["ConfigMap", "VirtualMachine", "DataVolume", "Secret"]
    again = json.loads(json.dumps(documents).replace('"root"', '"again"').replace('"leaver"', '"comer"'))
    for each in again:
        space.apply(each)
    wait_for(space, "again", "Succeeded")


def downloaded(space: Space, file: Path, export: str, *source: str) -> bytes:
    options = ("--output", str(file), "--format", "raw")
    space.virtctl("vmexport", "download", export, *source, *options, timeout=150)
    return file.read_bytes()


def test_a_snapshot_leaves_as_it_was_and_comes_back(stored: Space, tmp_path: Path) -> None:  # noqa: F811
    """What was written later is not in what is downloaded, nor in what is made anew; its claims go with the export."""
    space = stored
    data = uploaded(space, "root", tmp_path)
    space.apply(leaver())
    snapshot(space, "then", "leaver")
    saved(space, "then")
    disk = content(space, "root") / "disk.img"
    with disk.open("r+b") as file:
        file.write(os.urandom(MIB))
    assert downloaded(space, tmp_path / "raw", "out", "--snapshot", "then", "--keep-vme") == data
    assert disk.read_bytes() != data
    come_back(space)
    assert (content(space, "again") / "disk.img").read_bytes() == data
    space.virtctl("vmexport", "delete", "out")
    eventually(lambda: claims(space) == ["again", "root"], within_s=60, what="no claim of the export is left")


def test_a_block_claim_leaves_and_comes_back(stored: Space, tmp_path: Path) -> None:  # noqa: F811
    space = stored
    skip_without_loop_devices(space)
    data = uploaded(space, "root", tmp_path, "--volume-mode", "block")
    space.apply(leaver())
    raw = downloaded(space, tmp_path / "raw", "first", "--pvc", "root")
    assert (raw[: len(data)], any(raw[len(data) :])) == (data, False)
    come_back(space, "--vm", "leaver")
    made = space.engine.get("-n", space.namespace, "pvc", "again")
    assert made["spec"]["volumeMode"] == "Block"
    assert downloaded(space, tmp_path / "again", "second", "--pvc", "again")[: len(data)] == data


def wait_for(space: Space, name: str, wanted: str) -> None:
    def check() -> bool:
        found = space.engine.get("-n", space.namespace, "datavolume", name).get("status", {})
        assert found.get("phase") == wanted, found
        return True

    eventually(check, within_s=120, what=f"DataVolume {name} in phase {wanted}")


def test_an_export_waits_while_its_vm_runs(space: Space) -> None:
    """It says so, goes on when the machine has stopped, and ends with its time."""
    space.apply(claim("data"))
    machine = vm("busy", "Always")
    with_volume(machine["spec"]["template"], "data", {"persistentVolumeClaim": {"claimName": "data"}})
    space.apply(machine)
    space.ready("busy")
    space.apply(export("later", "VirtualMachine", "busy"))
    found = phase(space, "later", "Pending")
    eventually(lambda: "is running" in ready(space, "later")["message"], within_s=30)
    assert ready(space, "later")["reason"] == "InUse"
    assert "links" not in found
    space.virtctl("stop", "busy")
    phase(space, "later", "Ready", within_s=120)
    assert "is Ready" in space.virtctl("explain", "vmexport", "later")
    space.virtctl("start", "busy")
    phase(space, "later", "Pending")
    eventually(lambda: "ExportPaused" in reasons(space, "later"), within_s=30, what="an Event")


def test_an_export_ends_with_its_time(space: Space) -> None:
    space.apply(export("short", "PersistentVolumeClaim", "nothing", ttlDuration="8s"))
    found = phase(space, "short", "Pending")
    assert {each["type"]: each["reason"] for each in found["conditions"]} == {
        "Ready": "PVCNotFound", "PVCReady": "PVCNotFound",
    }  # fmt: skip
    eventually(lambda: space.kubectl("get", "vmexport", "-o", "name") == "", within_s=40, what="the export is gone")


def test_a_vm_without_disks_has_nothing_to_export(space: Space) -> None:
    machine = vm("bare", "Halted")
    space.apply(machine)
    space.apply(export("none", "VirtualMachine", "bare"))
    phase(space, "none", "Skipped")
    done = space.engine.run("virtctl", "-n", space.namespace, "vmexport", "download", "none", "--output", "-")
    assert (done.returncode, "no volume" in done.stderr) == (1, True), done.stderr


def test_files_of_a_claim_come_as_an_archive(space: Space, tmp_path: Path) -> None:
    """And a link in it to something of the Pod is a link, not what it points to."""
    space.apply(claim("files"))
    eventually(
        lambda: space.engine.get("-n", space.namespace, "pvc", "files")["status"]["phase"] == "Bound", within_s=30
    )
    place = content(space, "files")
    (place / "note.txt").write_text("hello")
    (place / "trap").symlink_to("/var/run/virtpod/token/token")
    output = tmp_path / "files.tar.gz"
    space.virtctl("vmexport", "download", "out", "--pvc", "files", "--output", str(output), timeout=150)
    with tarfile.open(output) as archive:
        assert archive.getmember("./trap").issym()
        note = archive.extractfile("./note.txt")
        assert note is not None
        assert note.read() == b"hello"
    eventually(lambda: space.kubectl("get", "vmexport", "-o", "name") == "", within_s=30, what="made for this alone")


def test_what_is_wrong_is_refused_at_the_door(space: Space) -> None:
    assert "spec.ttlDuration" in space.refuse(export("x", "VirtualMachine", "v", ttlDuration="soon"))
    wrong = export("x", "VirtualMachine", "v")
    wrong["spec"]["source"] = {"apiGroup": "backup.kubevirt.io", "kind": "VirtualMachineBackup", "name": "b"}
    assert "not built yet" in space.refuse(wrong)
    space.apply(export("x", "VirtualMachine", "v"))
    assert "cannot be changed" in space.refuse(export("x", "VirtualMachine", "w"))


def ready(space: Space, name: str) -> Any:
    return next(each for each in status(space, name)["conditions"] if each["type"] == "Ready")


def reasons(space: Space, name: str) -> set[str]:
    items = space.engine.get("-n", space.namespace, "events")["items"]
    return {each["reason"] for each in items if each["involvedObject"].get("name") == name}


def claims(space: Space) -> list[str]:
    return sorted(each["metadata"]["name"] for each in space.engine.get("-n", space.namespace, "pvc")["items"])


def pods(space: Space) -> list[str]:
    return [each["metadata"]["name"] for each in space.engine.get("-n", space.namespace, "pods")["items"]]
