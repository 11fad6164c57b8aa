"""A claim that grows while the guest runs: the guest sees its disk grow, and what it wrote is still there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.functional.launcher.sandbox import Sandbox, eventually
from tests.functional.launcher.test_guest import console, guest_vmi
from tests.functional.launcher.vmis import request
from virt_core.apis.names import LAUNCHER_UID
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root

#: Writes to its disk once, then tells its size in sectors and what it reads, whenever that changes.
SCRIPT = """#!/bin/sh
echo written > /dev/vdc; sync
while :; do
  new="$(cat /sys/block/vdc/size) $(head -c 7 /dev/vdc)"
  [ "$new" = "$old" ] || echo "disk: $new." > /dev/console
  old=$new
  usleep 200000
done &
"""


def claimed(size: str) -> dict[str, Any]:
    body = guest_vmi()
    body["spec"]["volumes"][1]["cloudInitNoCloud"]["userData"] = SCRIPT
    body["spec"]["volumes"][2] = {"name": "scratch", "persistentVolumeClaim": {"claimName": "data"}}
    devices = body["spec"]["domain"]["devices"]
    devices["disks"][2]["disk"]["bus"] = "virtio"
    del devices["interfaces"]
    info = {
        "claimName": "data",
        "volumeMode": "Filesystem",
        "capacity": {"storage": size},
        "requests": {"storage": size},
    }
    body["status"] = {"volumeStatus": [{"name": "scratch", "persistentVolumeClaimInfo": info}]}
    return body


def test_the_guest_sees_its_disk_grow(box: Sandbox, capability_cache: list[pb.CacheFile], guest_files: Path) -> None:
    shutil.copytree(guest_files, box.root / "images/disk_0")
    directory = box.root / "private/vmi-disks/scratch"
    directory.mkdir(parents=True)
    for path in (directory.parent, directory):
        os.chown(path, LAUNCHER_UID, LAUNCHER_UID)
    box.serve_notify()
    box.start()
    box.wait_ready()
    for size, sectors in (("32Mi", 65536), ("48Mi", 98304), ("40Mi", 98304)):
        box.stub.SyncVMI(request(claimed(size), capability_cache), timeout=30)
        eventually(lambda s=sectors: f"disk: {s} written." in console(box))  # type: ignore[misc]
    assert (directory / "disk.img").stat().st_size == 48 << 20
    assert console(box).count("disk: ") == 2
