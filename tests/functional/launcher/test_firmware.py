"""What the firmware hands to a real guest: ACPI tables, the data of Ignition; and disks like their volume."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.acpi import acpi_table

from tests.functional.launcher.sandbox import UID, Sandbox, eventually
from tests.functional.launcher.vmis import request, vmi, with_volume
from virt_launcher.disks.block_sizes import bounded
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root
IGNITION = '{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/etc/ä"}]}}'
#: What the guest finds, in its own words.
LOOK = """#!/bin/sh
look() { echo "found $1: $(sha256sum <"$2" | cut -d' ' -f1)." > /dev/console; }
look slic /sys/firmware/acpi/tables/SLIC
look msdm /sys/firmware/acpi/tables/MSDM
look ignition /sys/firmware/qemu_fw_cfg/by_name/opt/com.coreos/config/raw
cd /sys/block/vdc/queue
echo "found blocks: $(cat logical_block_size) $(cat physical_block_size)." > /dev/console
"""


def with_secret(box: Sandbox, body: dict[str, Any], **files: bytes) -> dict[str, Any]:
    folder = box.root / "private/file-volumes/keys"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / f"{name}.bin").write_bytes(content)
    body["spec"]["domain"]["firmware"] = {"acpi": {f"{name}NameRef": "keys" for name in files}}
    body["spec"].setdefault("volumes", []).append({"name": "keys", "secret": {"secretName": "keys"}})
    return body


def found(box: Sandbox) -> dict[str, str]:
    log = box.root / "private" / UID / "virt-serial0-log"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    told = [line.partition("found ")[2].rstrip("\r") for line in lines if "found " in line]
    return dict(line.removesuffix(".").split(": ", 1) for line in told if line.endswith("."))


def test_a_guest_finds_what_its_firmware_has_for_it(
    box: Sandbox, capability_cache: list[pb.CacheFile], guest_files: Path
) -> None:
    shutil.copytree(guest_files, box.root / "images/disk_0")
    tables = {"slic": acpi_table("SLIC", os.urandom(338)), "msdm": acpi_table("MSDM", os.urandom(49))}
    body = with_secret(box, with_volume({"containerDisk": {"image": "guest:v1"}}), **tables)
    body["metadata"]["annotations"] = {"kubevirt.io/ignitiondata": IGNITION}
    body["spec"]["domain"]["memory"] = {"guest": "128Mi"}
    body["spec"]["domain"]["devices"]["disks"] += [
        {"name": "ci", "disk": {"bus": "virtio"}},
        {"name": "data", "disk": {"bus": "virtio"}, "blockSize": {"matchVolume": {}}},
        {"name": "more", "disk": {"bus": "scsi"}, "dedicatedIOThread": True, "blockSize": {"matchVolume": {}}},
        {"name": "old", "disk": {"bus": "sata"}, "blockSize": {"matchVolume": {}}},
    ]
    body["spec"]["volumes"] += [
        {"name": "ci", "cloudInitNoCloud": {"userData": LOOK}},
        *({"name": name, "emptyDisk": {"capacity": "10Mi"}} for name in ("data", "more", "old")),
    ]
    box.start()
    box.wait_ready()
    box.stub.SyncVMI(request(body, capability_cache), timeout=30)
    size = os.statvfs(box.root / "ephemeral").f_bsize
    blocks = bounded(size, size, size)
    wanted = {kind: hashlib.sha256(table).hexdigest() for kind, table in tables.items()}
    wanted["ignition"] = hashlib.sha256(IGNITION.encode()).hexdigest()
    wanted["blocks"] = f"{blocks.logical} {blocks.physical}"
    eventually(lambda: len(found(box)) == len(wanted))
    assert found(box) == wanted
    # A second look at the same VMI changes nothing, also after its Secret has changed.
    (box.root / "private/file-volumes/keys/slic.bin").write_bytes(b"")
    assert not box.stub.SyncVMI(request(body, capability_cache), timeout=30).synced.needs_restart


def test_a_broken_table_never_reaches_qemu(box: Sandbox, capability_cache: list[pb.CacheFile]) -> None:
    body = with_secret(box, vmi(), slic=acpi_table("SLIC", checksum=1))
    box.start()
    box.wait_ready()
    with pytest.raises(grpc.RpcError) as caught:
        box.stub.SyncVMI(request(body, capability_cache), timeout=30)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    words = "spec.domain.firmware.acpi.slicNameRef: slic.bin of volume 'keys' has a wrong checksum"
    assert caught.value.details().startswith(words)
    assert not box.descendants("qemu-system")


@pytest.mark.parametrize("secure", [False, True])
def test_firmware_that_libvirt_chooses_is_of_the_kind_that_is_asked_for(
    box: Sandbox, capability_cache: list[pb.CacheFile], secure: bool
) -> None:
    """Files with enrolled keys have them in their names at Debian; the machine is then as it was asked for."""
    body = vmi(firmware={"bootloader": {"efi": {"secureBoot": secure}}}, features={"smm": {}})
    box.serve_notify()
    box.start("--firmware-auto-selection")
    box.wait_ready()
    box.stub.SyncVMI(request(body, capability_cache), timeout=60)
    command = Path(f"/proc/{box.qemu_pid}/cmdline").read_text()
    assert f"{box.root}/private/{UID}/efi-variables.fd" in command
    assert ("OVMF_CODE" in command and ".ms.fd" in command) is secure
    assert "OVMF" in command
    again = box.stub.SyncVMI(request(body, capability_cache), timeout=60)
    assert not again.synced.needs_restart
