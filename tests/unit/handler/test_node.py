"""Labels and heartbeat of the node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube

from virt_core.apis import names
from virt_core.runtime.clock import FakeClock
from virt_handler.node.capabilities import NodeCapabilities, kvm_usable
from virt_handler.node.heartbeat import Heartbeat
from virt_handler.node.labels import LABEL_VIRTUALIZATION, labels

NODE = "/api/v1/nodes/node1"
HOST = """<capabilities><host><cpu><arch>x86_64</arch></cpu></host>
<guest><arch name='i686'><machine>isapc</machine></arch></guest>
<guest><arch name='x86_64'><machine>pc-q35-7.2</machine><machine canonical='pc-q35-7.2'>q35</machine>
<domain type='kvm'><machine>special</machine></domain></arch></guest></capabilities>"""
DOMAIN = """<domainCapabilities><cpu>
<mode name='host-model' supported='yes'><model>EPYC</model><vendor>AMD</vendor>
<feature policy='require' name='x2apic'/><feature policy='disable' name='svm'/></mode>
<mode name='custom' supported='yes'><model usable='yes'>Nehalem</model><model usable='no'>Icelake-Server</model>
<model usable='yes'>qemu64</model><model usable='yes'>bad name!</model></mode></cpu></domainCapabilities>"""


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as fake:
        yield fake


def test_labels_say_what_the_node_can_do() -> None:
    found = labels(HOST, DOMAIN, kvm=False)
    assert found == {
        LABEL_VIRTUALIZATION: "emulation",
        "cpu-model.node.kubevirt.io/Nehalem": "true",
        "cpu-model-migration.node.kubevirt.io/Nehalem": "true",
        "cpu-model-migration.node.kubevirt.io/Icelake-Server": "true",
        "host-model-cpu.node.kubevirt.io/EPYC": "true",
        "cpu-vendor.node.kubevirt.io/AMD": "true",
        "cpu-feature.node.kubevirt.io/x2apic": "true",
        "machine-type.node.kubevirt.io/pc-q35-7.2": "true",
        "machine-type.node.kubevirt.io/q35": "true",
        "machine-type.node.kubevirt.io/special": "true",
    }


def test_documents_that_are_missing_or_torn_give_no_labels() -> None:
    assert labels("", "<domainCapabil", kvm=True) == {LABEL_VIRTUALIZATION: "kvm"}


def test_kvm_needs_device_and_processor(tmp_path: Path) -> None:
    device, cpuinfo = tmp_path / "kvm", tmp_path / "cpuinfo"
    cpuinfo.write_text("flags\t\t: fpu vmx sse\n")
    assert not kvm_usable(str(device), str(cpuinfo))
    device.write_text("")
    assert kvm_usable(str(device), str(cpuinfo))
    cpuinfo.write_text("flags\t\t: fpu vmxoff sse\n")
    assert not kvm_usable(str(device), str(cpuinfo))


def test_cache_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    capabilities = NodeCapabilities(str(tmp_path), kvm=False)
    assert capabilities.cache_files() == []
    (tmp_path / "capabilities").mkdir()
    (tmp_path / "capabilities" / "a.xml").write_text("<a/>")
    (file,) = capabilities.cache_files()
    assert (file.name, file.content) == ("a.xml", b"<a/>")
    assert capabilities.cache_files()[0] is file
    (tmp_path / "capabilities" / "b.xml").write_text("<b/>")
    assert len(capabilities.cache_files()) == 2


def beating(kube: FakeKube, tmp_path: Path, address: str = "10.0.0.1:8186") -> Heartbeat:
    (tmp_path / "domcapabilities.xml").write_text(DOMAIN)
    return Heartbeat(kube.client(), "node1", address, NodeCapabilities(str(tmp_path), kvm=False), FakeClock())


def patches(kube: FakeKube) -> list[Any]:
    return [body["metadata"] for method, _, _, body in kube.requests if method == "PATCH"]


def test_heartbeat_is_one_patch_and_a_small_one_later(kube: FakeKube, tmp_path: Path) -> None:
    stale = {"cpu-model.node.kubevirt.io/Old": "true", "kubernetes.io/arch": "amd64", names.LABEL_SCHEDULABLE: "false"}
    kube.put(NODE, {"metadata": {"labels": stale}})
    heart = beating(kube, tmp_path)
    heart.beat()
    node = kube.objects[NODE]["metadata"]
    assert node["labels"][names.LABEL_SCHEDULABLE] == "true"
    assert node["labels"]["cpu-model.node.kubevirt.io/Nehalem"] == "true"
    assert "cpu-model.node.kubevirt.io/Old" not in node["labels"]
    assert node["labels"]["kubernetes.io/arch"] == "amd64"
    assert node["annotations"][names.ANNOTATION_HANDLER_ADDRESS] == "10.0.0.1:8186"
    heart.beat()
    _first, second = patches(kube)
    assert set(second["labels"]) == {names.LABEL_SCHEDULABLE}
    assert second["annotations"][names.ANNOTATION_HEARTBEAT]


def test_stop_withdraws_the_node(kube: FakeKube, tmp_path: Path) -> None:
    kube.put(NODE, {"metadata": {"labels": {}}})
    heart = beating(kube, tmp_path)
    heart.beat()
    heart.withdraw()
    assert kube.objects[NODE]["metadata"]["labels"][names.LABEL_SCHEDULABLE] == "false"


def test_who_listens_everywhere_is_reached_at_the_nodes_address(kube: FakeKube, tmp_path: Path) -> None:
    addresses = [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "192.0.2.7"}]
    kube.put(NODE, {"metadata": {"labels": {}}, "status": {"addresses": addresses}})
    beating(kube, tmp_path, "0.0.0.0:8186").beat()
    assert kube.objects[NODE]["metadata"]["annotations"][names.ANNOTATION_HANDLER_ADDRESS] == "192.0.2.7:8186"
