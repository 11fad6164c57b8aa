"""What a launcher costs, measured; the limits are for a busy machine, the figures are printed with `pytest -s`."""

from __future__ import annotations

import time

import pytest

from tests.functional.launcher.sandbox import Sandbox
from tests.functional.launcher.vmis import request, with_volume
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root

READY_S, SYNC_S = 1.5, 1.5
PRIVATE_KIB, PSS_KIB = 27 * 1024, 70 * 1024


def test_start_time_and_memory(box: Sandbox, capability_cache: list[pb.CacheFile]) -> None:
    box.serve_notify()
    box.start()
    ready = box.wait_ready()
    body = with_volume({"emptyDisk": {"capacity": "10Mi"}})
    begin = time.monotonic()
    box.stub.SyncVMI(request(body, capability_cache), timeout=30)
    sync = time.monotonic() - begin
    launcher, daemon = box.memory(box.pid), box.memory(box.descendants("libvirtd")[0])
    pss = launcher["Pss"] + daemon["Pss"]
    print(f"\nexec → launcher-sock {ready:.3f} s, SyncVMI → QEMU runs {sync:.3f} s")
    print(f"launcher private {launcher['Private']} KiB, launcher + libvirt daemon PSS {pss} KiB")
    assert ready < READY_S
    assert sync < SYNC_S
    assert launcher["Private"] < PRIVATE_KIB
    assert pss < PSS_KIB


def test_probing_is_done_once(box: Sandbox) -> None:
    target = box.root / "cache/node"
    arguments = ["--node-probe", str(target)]
    box.start(arguments=arguments)
    assert box.wait_exit(120) == 0, box.log.read_text()
    names = {str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()}
    assert {"probe.json", "host-capabilities.xml", "domcapabilities.xml"} <= names
    assert any(name.startswith("capabilities/") for name in names)
    stamp = (target / "probe.json").stat().st_mtime_ns
    box.start(arguments=arguments)
    assert box.wait_exit(10) == 0
    assert (target / "probe.json").stat().st_mtime_ns == stamp
