"""VMIs for the functional tests."""

from __future__ import annotations

import json
from typing import Any

from tests.functional.launcher.sandbox import UID
from virt_protos.launcher.v1 import launcher_pb2 as pb


def vmi(**domain: Any) -> dict[str, Any]:
    """The smallest machine: firmware only, no disk, no network."""
    spec = {"memory": {"guest": "64Mi"}, "devices": {}} | domain
    return {"metadata": {"name": "vm1", "namespace": "ns", "uid": UID}, "spec": {"domain": spec}}


def with_volume(source: dict[str, Any], disk: dict[str, Any] | None = None) -> dict[str, Any]:
    """A machine with one disk on this volume source."""
    result = vmi(devices={"disks": [{"name": "root", **(disk or {"disk": {"bus": "virtio"}})}]})
    result["spec"]["volumes"] = [{"name": "root", **source}]
    return result


def request(body: dict[str, Any], cache: list[pb.CacheFile], **options: Any) -> pb.SyncVMIRequest:
    return pb.SyncVMIRequest(
        vmi_json=json.dumps(body).encode(),
        options=pb.SyncOptions(allow_emulation=True, capability_cache=cache, **options),
    )
