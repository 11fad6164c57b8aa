"""Labels and heartbeat of the node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_core.apis import names
from virt_core.runtime.clock import FakeClock
from virt_handler.node.capabilities import NodeCapabilities, kvm_usable
from virt_handler.node.heartbeat import Heartbeat
from virt_handler.node.hostfacts import cpu_manager_labels, kernel_labels
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
        "cpu-model-migration.node.kubevirt.io/EPYC": "true",
        "host-model-required-features.node.kubevirt.io/x2apic": "true",
        "kubevirt.io/vm-arch-amd64": "true",
        "host-model-cpu.node.kubevirt.io/EPYC": "true",
        "cpu-vendor.node.kubevirt.io/AMD": "true",
        "cpu-feature.node.kubevirt.io/x2apic": "true",
        "machine-type.node.kubevirt.io/pc-q35-7.2": "true",
        "machine-type.node.kubevirt.io/q35": "true",
        "machine-type.node.kubevirt.io/special": "true",
    }


def test_labels_name_every_architecture_that_the_node_runs() -> None:
    guest = "<guest><arch name='aarch64'><machine>virt</machine></arch></guest>"
    found = labels(HOST.replace("</capabilities>", f"{guest}</capabilities>"), DOMAIN, kvm=False)
    new = found.keys() - labels(HOST, DOMAIN, kvm=False).keys()
    assert new == {"kubevirt.io/vm-arch-arm64"}, "machine types are those of the node's own architecture"


FEATURES = """<cpu mode='custom'><model>EPYC</model><feature policy='require' name='sse4.2'/>
<feature policy='disable' name='mpx'/></cpu>"""
RICH_HOST = HOST.replace("</arch></cpu>", "</arch><counter name='tsc' frequency='2592000000' scaling='no'/></cpu>", 1)
RICH_DOMAIN = DOMAIN.replace(
    "</cpu></domain",
    """</cpu><features><sev supported='yes'><maxGuests>99</maxGuests><maxESGuests>10</maxESGuests></sev>
<hyperv supported='yes'><enum name='features'><value>vpindex</value><value>stimer</value></enum></hyperv>
<launchSecurity supported='yes'><enum name='sectype'><value>sev</value><value>sev-snp</value></enum></launchSecurity>
<s390-pv supported='yes'/>
</features></domain""",
)


def test_labels_of_a_rich_node() -> None:
    plain = labels(HOST, DOMAIN, kvm=True)
    rich = labels(RICH_HOST, RICH_DOMAIN, FEATURES, kvm=True)
    assert {key: value for key, value in rich.items() if key not in plain} == {
        "cpu-feature.node.kubevirt.io/sse4.2": "true",
        "cpu-timer.node.kubevirt.io/tsc-frequency": "2592000000",
        "cpu-timer.node.kubevirt.io/tsc-scalable": "false",
        "hyperv.node.kubevirt.io/vpindex": "true",
        "hyperv.node.kubevirt.io/synictimer": "true",
        names.LABEL_SEV: "",
        names.LABEL_SEV_ES: "",
        names.LABEL_SEV_SNP: "",
        names.LABEL_S390_PV: "",
    }


def test_an_obsolete_host_model_is_told() -> None:
    found = labels(HOST, DOMAIN, kvm=True, obsolete=frozenset({"EPYC"}))
    assert found["node-labeller.kubevirt.io/obsolete-host-model"] == "true"
    assert "cpu-model-migration.node.kubevirt.io/EPYC" not in found


def test_versions_of_a_model_are_as_obsolete_as_the_model() -> None:
    """libvirt 11 lists them; a 486 has no interrupt controller that a q35 machine could use, whatever its version."""
    models = "<model usable='yes' canonical='486-v1'>486</model><model usable='yes'>486-v1</model>"
    newer = DOMAIN.replace(
        "<model usable='yes'>Nehalem", f"{models}<model usable='yes'>Nehalem-v1</model><model usable='yes'>Nehalem"
    )
    found = set(labels(HOST, newer, kvm=False)) - set(labels(HOST, DOMAIN, kvm=False))
    assert found == {"cpu-model.node.kubevirt.io/Nehalem-v1", "cpu-model-migration.node.kubevirt.io/Nehalem-v1"}


def test_settings_of_kernel_and_kubelet(tmp_path: Path) -> None:
    assert kernel_labels(str(tmp_path)) == {}
    for path, text in {"proc/sys/kernel/sched_rt_runtime_us": "-1\n", "sys/kernel/mm/ksm/run": "1\n"}.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    assert kernel_labels(str(tmp_path)) == {names.LABEL_REALTIME: "", names.LABEL_KSM_ENABLED: "true"}
    gate = frozenset({"CPUManager"})
    no = {"cpumanager": "false", "kubevirt.io/cpumanager": "false"}
    assert cpu_manager_labels(str(tmp_path), gate) == no
    (tmp_path / "cpu_manager_state").write_text('{"policyName":"static","defaultCpuSet":"0-3","checksum":1}')
    assert cpu_manager_labels(str(tmp_path), frozenset()) == no
    assert set(cpu_manager_labels(str(tmp_path), gate).values()) == {"true"}


def test_documents_that_are_missing_or_torn_give_no_labels() -> None:
    assert labels("", "<domainCapabil", kvm=True) == {LABEL_VIRTUALIZATION: "kvm"}


def test_kvm_needs_device_and_processor(tmp_path: Path) -> None:
    device, cpuinfo = tmp_path / "kvm", tmp_path / "cpuinfo"
    cpuinfo.write_text("flags\t\t: fpu vmx sse\n")
    assert not kvm_usable(str(device), str(cpuinfo))
    device.write_text("")
    assert kvm_usable(str(device), str(cpuinfo))
    other = tmp_path / "other"
    other.write_text("flags\t\t: fpu vmxoff sse\n")
    assert not kvm_usable(str(device), str(other))
    assert not kvm_usable(str(device), str(tmp_path / "none"))


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
    (tmp_path / "host-capabilities.xml").write_text(HOST)
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


def test_node_without_a_record_of_its_abilities_keeps_their_labels(kube: FakeKube, tmp_path: Path) -> None:
    """Machines that asked for them run there."""
    before = {"cpu-model.node.kubevirt.io/Nehalem": "true"}
    kube.put(NODE, {"metadata": {"labels": before}})
    heart = beating(kube, tmp_path)
    (tmp_path / "host-capabilities.xml").unlink()
    (tmp_path / "domcapabilities.xml").unlink()
    heart.beat()
    assert kube.objects[NODE]["metadata"]["labels"].items() >= before.items()


def test_node_that_the_labeller_shall_skip_still_beats(kube: FakeKube, tmp_path: Path) -> None:
    labels_before = {"cpu-model.node.kubevirt.io/Old": "true"}
    skip = {names.ANNOTATION_SKIP_NODE_LABELLER: "true"}
    kube.put(NODE, {"metadata": {"labels": labels_before, "annotations": skip}})
    beating(kube, tmp_path).beat()
    node = kube.objects[NODE]["metadata"]
    assert node["labels"] == labels_before | {names.LABEL_SCHEDULABLE: "true"}
    assert node["annotations"][names.ANNOTATION_HEARTBEAT]


def schedulable(kube: FakeKube) -> str | None:
    labels_now: dict[str, str] = kube.objects[NODE]["metadata"]["labels"]
    return labels_now.get(names.LABEL_SCHEDULABLE)


def waiting(kube: FakeKube, tmp_path: Path, ready: list[bool]) -> Heartbeat:
    """Of a node whose kubelet may not know our devices."""
    capabilities = NodeCapabilities(str(tmp_path), kvm=False)
    return Heartbeat(
        kube.client(), "node1", "10.0.0.1:8186", capabilities, FakeClock(), kubelet_root="/k", ready=lambda: ready[0]
    )


def test_new_node_takes_machines_as_soon_as_the_kubelet_knows_its_devices(kube: FakeKube, tmp_path: Path) -> None:
    ready = [False]
    kube.put(NODE, {"metadata": {"labels": {}}})
    heart = waiting(kube, tmp_path, ready)
    with running(heart.run):
        eventually(lambda: schedulable(kube) == "false")
        ready[0] = True
        heart.nudge()
        eventually(lambda: schedulable(kube) == "true")
        assert kube.objects[NODE]["metadata"]["labels"]["kubevirt.io/cpumanager"] == "false"


def test_node_that_was_offered_stays_so(kube: FakeKube, tmp_path: Path) -> None:
    """A kubelet that starts and finds another label ends the guests that run, so neither its absence nor ours shows."""
    ready = [False]
    kube.put(NODE, {"metadata": {"labels": {names.LABEL_SCHEDULABLE: "true"}}})
    heart = waiting(kube, tmp_path, ready)
    with running(heart.run):
        eventually(lambda: patches(kube))
        ready[0] = True
        heart.nudge()
        eventually(lambda: len(patches(kube)) == 2)
        ready[0] = False
        heart.nudge()
        eventually(lambda: len(patches(kube)) == 3)
    assert [patch["labels"].get(names.LABEL_SCHEDULABLE) for patch in patches(kube)] == [None, "true", None]
    assert schedulable(kube) == "true"


def test_node_that_the_controller_withdrew_is_offered_when_it_is_ready(kube: FakeKube, tmp_path: Path) -> None:
    ready = [False]
    kube.put(NODE, {"metadata": {"labels": {names.LABEL_SCHEDULABLE: "false"}}})
    heart = waiting(kube, tmp_path, ready)
    heart.beat()
    assert schedulable(kube) == "false"
    ready[0] = True
    heart.beat()
    assert schedulable(kube) == "true"


def test_who_listens_everywhere_is_reached_at_the_nodes_address(kube: FakeKube, tmp_path: Path) -> None:
    addresses = [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "192.0.2.7"}]
    kube.put(NODE, {"metadata": {"labels": {}}, "status": {"addresses": addresses}})
    beating(kube, tmp_path, "0.0.0.0:8186").beat()
    assert kube.objects[NODE]["metadata"]["annotations"][names.ANNOTATION_HANDLER_ADDRESS] == "192.0.2.7:8186"
