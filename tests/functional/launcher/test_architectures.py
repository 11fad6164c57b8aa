"""A machine of another architecture runs its own code: its firmware speaks on the serial console."""

from __future__ import annotations

import os
import shutil
from typing import Any

import grpc
import pytest

from tests.functional.launcher.sandbox import UID, Sandbox, eventually
from tests.functional.launcher.vmis import request, vmi
from virt_core.rpc.status import failure_of
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="arm64 may be this machine's own"),
]
MAC = "02:00:00:aa:bb:01"


def arm64() -> dict[str, Any]:
    """As admission leaves it."""
    devices = {"interfaces": [{"name": "default", "masquerade": {}}], "rng": {}}
    body = vmi(
        firmware={"bootloader": {"efi": {"secureBoot": False}}}, cpu={"model": "host-passthrough"}, devices=devices
    )
    body["spec"] |= {"architecture": "arm64"}
    body["spec"]["domain"] |= {"memory": {"guest": "256Mi"}, "machine": {"type": "virt"}}
    return body


def console(box: Sandbox) -> str:
    path = box.root / "private" / UID / "virt-serial0-log"
    return path.read_text(errors="replace") if path.exists() else ""


@pytest.mark.skipif(
    shutil.which("qemu-system-aarch64") is None or not os.path.exists("/usr/share/AAVMF/AAVMF_CODE.fd"),
    reason="needs Debian's qemu-system-arm and qemu-efi-aarch64",
)
def test_uefi_of_arm64_starts(box: Sandbox) -> None:
    box.serve_notify()
    box.start("--any-architecture", tap="tap0")
    box.wait_ready()
    nic = pb.InterfaceAttachment(name="default", tap="tap0", mac=MAC, mtu=1450)
    answer = box.stub.SyncVMI(request(arm64(), [], interfaces=[nic]), timeout=60)
    assert answer.domain.state == pb.DOMAIN_STATE_RUNNING
    eventually(lambda: "UEFI firmware" in console(box))
    same = box.stub.SyncVMI(request(arm64(), [], interfaces=[nic]), timeout=60)
    assert not same.synced.needs_restart


def test_without_leave_it_is_refused_by_its_field(box: Sandbox) -> None:
    box.serve_notify()
    box.start()
    box.wait_ready()
    with pytest.raises(grpc.RpcError) as refused:
        box.stub.SyncVMI(request(arm64(), []), timeout=60)
    failure = failure_of(refused.value)
    assert failure.code is grpc.StatusCode.INVALID_ARGUMENT
    assert failure.message.startswith("spec.architecture: a machine of arm64 cannot run on this node of amd64")
