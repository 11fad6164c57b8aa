"""What cannot be had is refused in the user's words, nothing stays half-made, and a better VMI then starts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.functional.launcher.sandbox import Sandbox
from tests.functional.launcher.vmis import request, vmi, with_volume
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root
IMAGE = {"containerDisk": {"image": "example/disk:v1"}}
#: Of the launcher, for whatever an image claims: what it loads to look at its first VMI.
MAX_GROWTH_KIB = 24 << 10
KERNEL = {"image": "example/kernel:v1", "kernelPath": "/boot/vmlinuz"}


@pytest.fixture
def ready(box: Sandbox) -> Sandbox:
    box.serve_notify()
    box.start()
    box.wait_ready()
    return box


def refusal(box: Sandbox, body: dict[str, Any], cache: list[pb.CacheFile]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as call:
        box.stub.SyncVMI(request(body, cache), timeout=30)
    error: Any = call.value
    return error.code(), error.details()


def image(box: Sandbox, **files: bytes) -> Path:
    root = box.root / "images/disk_0"
    shutil.rmtree(root, ignore_errors=True)
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def test_container_disk_without_a_disk(ready: Sandbox, capability_cache: list[pb.CacheFile]) -> None:
    image(ready, readme=b"hello")
    code, text = refusal(ready, with_volume(IMAGE), capability_cache)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text.startswith("spec.volumes[0].containerDisk: image 'example/disk:v1': it has no directory /disk")
    assert "readme" in text


def test_container_disk_in_a_format_that_names_other_files(
    ready: Sandbox, capability_cache: list[pb.CacheFile]
) -> None:
    root = image(ready, disk__base=b"x" * 4096)
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", "base", "-F", "raw", str(root / "disk/evil.qcow2")]
    subprocess.run(command, check=True)
    (root / "disk/base").unlink()
    code, text = refusal(ready, with_volume(IMAGE), capability_cache)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "it has a backing file" in text


def _patched(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.mark.parametrize(
    ("arguments", "harm", "words"),
    [
        (["-f", "qcow2", "-o", "data_file={disk}/data,data_file_raw=on"], None, "it has an external data file"),
        (["-f", "vmdk"], None, "it is a VMDK file"),
        (["-f", "vdi"], None, "it is a VDI file"),
        (["-f", "vhdx"], None, "it is a VHDX file"),
        (["-f", "qcow2"], lambda path: _patched(path, 36, b"\xff" * 4), "the tables that its qcow2 header claims"),
        (["-f", "qcow2"], lambda path: _patched(path, 24, b"\x7f" + b"\xff" * 7), "is beyond the limit"),
        (["-f", "qcow2"], lambda path: _patched(path, 100, b"\xff" * 4), "its qcow2 header is not valid"),
        (["-f", "qcow2"], lambda path: os.truncate(path, 80), "its qcow2 header is cut off"),
        (["-f", "qcow2"], lambda path: os.truncate(path, 2 << 16), "it is cut off: its tables lie behind its end"),
    ],
    ids=["data-file", "vmdk", "vdi", "vhdx", "l1", "size", "header", "cut-header", "cut"],
)
def test_a_hostile_image_is_refused_by_name_and_costs_nothing(
    ready: Sandbox,
    capability_cache: list[pb.CacheFile],
    arguments: list[str],
    harm: Callable[[Path], None] | None,
    words: str,
) -> None:
    root = image(ready, disk__data=b"")
    disk = root / "disk/evil"
    given = [argument.format(disk=root / "disk") for argument in arguments]
    subprocess.run(["qemu-img", "create", "-q", *given, str(disk), "64M"], check=True)
    (root / "disk/data").unlink()
    if harm is not None:
        harm(disk)
    before = ready.memory(ready.pid)["Pss"]
    code, text = refusal(ready, with_volume(IMAGE), capability_cache)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text.startswith("spec.volumes[0].containerDisk: image 'example/disk:v1': /disk/evil cannot be a disk: ")
    assert words in text
    assert ready.memory(ready.pid)["Pss"] - before < MAX_GROWTH_KIB
    assert not ready.descendants("qemu")


def test_kernel_missing_in_the_image(ready: Sandbox, capability_cache: list[pb.CacheFile]) -> None:
    (ready.root / "kernel/boot").mkdir()
    (ready.root / "kernel/boot/other").write_bytes(b"")
    body = vmi(firmware={"kernelBoot": {"container": KERNEL}})
    code, text = refusal(ready, body, capability_cache)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    field = "spec.domain.firmware.kernelBoot.container.kernelPath"
    assert text == f"{field}: image 'example/kernel:v1': there is no file /boot/vmlinuz; /boot has: other"


def test_what_qemu_itself_refuses_carries_its_words(ready: Sandbox, capability_cache: list[pb.CacheFile]) -> None:
    (ready.root / "kernel/boot").mkdir()
    (ready.root / "kernel/boot/vmlinuz").write_bytes(b"this is no kernel")
    body = vmi(firmware={"kernelBoot": {"container": KERNEL}})
    code, text = refusal(ready, body, capability_cache)
    assert code is grpc.StatusCode.INTERNAL
    assert text.startswith("QEMU did not start: ")
    assert "invalid kernel header" in text


@pytest.mark.parametrize(
    ("cpu", "field"),
    [
        ({"model": "nosuchmodel"}, "spec.domain.cpu.model"),
        ({"model": "Nehalem", "features": [{"name": "nosuchfeature"}]}, "spec.domain.cpu.features"),
    ],
)
def test_processors_that_qemu_does_not_know(
    ready: Sandbox, capability_cache: list[pb.CacheFile], cpu: dict[str, Any], field: str
) -> None:
    """libvirt says so under a code that means nothing; to the user it is the field that is wrong."""
    code, text = refusal(ready, vmi(cpu=cpu), capability_cache)
    assert code is grpc.StatusCode.INVALID_ARGUMENT, text
    assert text.startswith(f"{field}: ")
    assert "nosuch" in text


def test_the_vmi_of_another_launcher(ready: Sandbox, capability_cache: list[pb.CacheFile]) -> None:
    body = vmi()
    body["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    code, text = refusal(ready, body, capability_cache)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text.startswith("metadata.uid")


def test_after_a_refusal_a_good_vmi_starts(ready: Sandbox, capability_cache: list[pb.CacheFile]) -> None:
    image(ready, readme=b"hello")
    refusal(ready, with_volume(IMAGE), capability_cache)
    assert not ready.stub.GetDomain(pb.GetDomainRequest()).HasField("domain")
    image(ready, disk__disk=b"x" * 4096)
    answer = ready.stub.SyncVMI(request(with_volume(IMAGE), capability_cache), timeout=30)
    assert answer.domain.state == pb.DOMAIN_STATE_RUNNING
    assert {d.state for d in ready.handler.domains} <= {pb.DOMAIN_STATE_RUNNING}


@pytest.mark.parametrize("target", ["/etc/passwd", "/proc/self/environ", "../../../../../etc/passwd", "../real.img"])
def test_a_link_in_an_image_is_not_followed(ready: Sandbox, capability_cache: list[pb.CacheFile], target: str) -> None:
    """CVE-2022-1798, CVE-2025-64433: as the disk, named or found, and as the kernel; not out of it, not within."""
    root = image(ready, disk__real=b"x" * 4096)
    (root / "disk/real").rename(root / "real.img")
    (root / "disk/disk.img").symlink_to(target)
    named = {"containerDisk": {"image": "example/disk:v1", "path": "/disk/disk.img"}}
    for source, words in ((IMAGE, "must hold exactly one disk file, found nothing"), (named, "symbolic link")):
        code, text = refusal(ready, with_volume(source), capability_cache)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert words in text
    (ready.root / "kernel/boot").mkdir(exist_ok=True)
    (ready.root / "kernel/boot/vmlinuz").symlink_to(target)
    code, text = refusal(ready, vmi(firmware={"kernelBoot": {"container": KERNEL}}), capability_cache)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "symbolic link" in text
    assert not ready.stub.GetDomain(pb.GetDomainRequest()).HasField("domain")
