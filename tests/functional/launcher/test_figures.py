"""What a launcher costs in memory, and what it does only once; the figures are printed with `pytest -s`."""

from __future__ import annotations

import pytest

from tests.functional.launcher.sandbox import Sandbox
from tests.functional.launcher.vmis import request, with_volume
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root

PRIVATE_KIB, PSS_KIB = 27 * 1024, 70 * 1024


def test_memory(box: Sandbox, capability_cache: list[pb.CacheFile]) -> None:
    box.serve_notify()
    box.start()
    box.wait_ready()
    body = with_volume({"emptyDisk": {"capacity": "10Mi"}})
    box.stub.SyncVMI(request(body, capability_cache), timeout=30)
    launcher, daemon = box.memory(box.pid), box.memory(box.descendants("libvirtd")[0])
    pss = launcher["Pss"] + daemon["Pss"]
    print(f"\nlauncher private {launcher['Private']} KiB, launcher + libvirt daemon PSS {pss} KiB")
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
