"""The guest's processor: what is asked for and cannot be had is refused, and what is not read back is still known."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import grpc
import pytest

from tests.functional.launcher.sandbox import Sandbox, eventually
from tests.functional.launcher.vmis import request, vmi
from tests.unit.launcher.cases import Case, context_of
from virt_launcher.convert.converter import convert
from virt_launcher.domain.domain import Domain, from_xml, to_xml
from virt_protos.launcher.v1 import launcher_pb2 as pb

pytestmark = pytest.mark.root
#: Emulation has no AVX-512.
LACKED = {"features": [{"name": "avx512f", "policy": "require"}]}


@pytest.fixture
def ready(box: Sandbox) -> Sandbox:
    box.serve_notify()
    box.start()
    box.wait_ready()
    return box


def test_a_required_feature_that_cannot_be_had_is_refused(ready: Sandbox, capability_cache: list[pb.CacheFile]) -> None:
    with pytest.raises(grpc.RpcError, match="missing features: avx512f"):
        ready.stub.SyncVMI(request(vmi(cpu=LACKED), capability_cache), timeout=30)
    assert ready.descendants("qemu-system") == []


def test_a_required_feature_that_can_be_had_starts(ready: Sandbox, capability_cache: list[pb.CacheFile]) -> None:
    body = vmi(cpu={"features": [{"name": "aes"}, {"name": "avx", "policy": "disable"}]})
    answer = ready.stub.SyncVMI(request(body, capability_cache), timeout=30)
    assert answer.domain.state == pb.DOMAIN_STATE_RUNNING
    live = from_xml(ready.virsh("dumpxml", "ns_vm1"))
    assert live.cpu is not None
    assert {f.name: f.policy for f in live.cpu.features} == {"aes": "require", "avx": "disable"}


@pytest.mark.parametrize("domain", [{}, {"cpu": {"sockets": 2, "maxSockets": 4}}], ids=["plain", "sockets"])
def test_the_processor_is_the_same_without_reading_it_back(ready: Sandbox, domain: dict[str, Any]) -> None:
    wanted = convert(context_of(Case(domain=domain, context={"machine_dir": str(ready.root / "private")})))
    assert wanted.without_capabilities
    quick = shown(ready, wanted)
    wanted.without_capabilities = []
    assert shown(ready, wanted) == quick


def shown(box: Sandbox, wanted: Domain) -> list[str]:
    """The processor of the running machine, for us and for the other side of a migration."""
    file = box.root / "private/domain.xml"
    file.write_text(to_xml(wanted))
    box.virsh("create", str(file))
    texts = [box.virsh("dumpxml", "ns_vm1", *more) for more in ((), ("--migratable",))]
    box.virsh("destroy", "ns_vm1")
    eventually(lambda: box.descendants("qemu-system") == [])
    return [ET.canonicalize(ET.tostring(_cpu(text)), strip_text=True) for text in texts]


def _cpu(text: str) -> ET.Element:
    found = ET.fromstring(text).find("cpu")
    assert found is not None
    return found
