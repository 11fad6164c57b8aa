"""The Pod that a machine moves to: its processor, its size, its networks, and the Pod that brings its volumes."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.vmis import NODE, POD_UID, handed_over, running_pod
from framework.waiting import eventually, running
from unit.controller.test_hotplug import NAMESPACE, VMI, attached, claim, start, told
from unit.controller.test_hotplug import holder as volume_holder
from unit.controller.test_hotplug import machine as hot_plugged
from unit.controller.test_migration import FREE, OTHER, decided, job, phase, pod, reason

from virt_controller.hotplug.controller import LAUNCHER_INDEX, launcher_indexer
from virt_controller.hotplug.wanted import claims_of
from virt_controller.launcher_pod import Move, TemplateConfig, render
from virt_controller.migration import target
from virt_controller.migration.decide import PENDING_S
from virt_controller.migration.target import Bringing
from virt_controller.migration.volumes import Bringer
from virt_core.apis import names
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.migrationstate import VirtualMachineInstanceMigrationState as MoveState
from virt_core.apis.podnetworks import selections
from virt_core.apis.pods import Pod
from virt_core.apis.registry import plain_object
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.informer import Informer

CONFIG = TemplateConfig("launcher:v1", kvm=True)
NODE_LABELS = {
    "host-model-cpu.node.kubevirt.io/Skylake": "true",
    "cpu-model-migration.node.kubevirt.io/Skylake": "true",
    "cpu-model-migration.node.kubevirt.io/Nehalem": "true",
    "cpu-model.node.kubevirt.io/Nehalem": "true",
    "host-model-required-features.node.kubevirt.io/vmx": "true",
    "cpu-feature.node.kubevirt.io/vmx": "true",
    "cpu-feature.node.kubevirt.io/avx2": "true",
    "cpu-vendor.node.kubevirt.io/Intel": "true",
    "kubernetes.io/arch": "amd64",
}
OF_HOST = {
    "cpu-model-migration.node.kubevirt.io/Skylake": "true",
    "cpu-feature.node.kubevirt.io/vmx": "true",
    "cpu-vendor.node.kubevirt.io/Intel": "true",
}


def machine(cpu: dict[str, Any] | None = None, **status: Any) -> VirtualMachineInstance:
    domain = {"cpu": cpu} if cpu is not None else {}
    domain |= {"memory": {"guest": "128Mi", "maxGuest": "512Mi"}}
    return handed_over("Running", spec={"domain": domain}, status={"nodeName": NODE, **status})


def test_a_guest_that_copies_its_host_asks_for_that_model_and_its_features() -> None:
    assert target.processor_labels(machine({"model": "host-model"}), None, NODE_LABELS) == OF_HOST
    assert target.processor_labels(machine(), None, NODE_LABELS) == OF_HOST


def test_what_the_first_move_asked_for_stays() -> None:
    """The second node has more, which the guest never saw."""
    source = running_pod()
    source.spec.node_selector = OF_HOST | {"kubernetes.io/arch": "amd64"}
    other = {key.replace("Skylake", "Icelake"): value for key, value in NODE_LABELS.items()}
    assert target.processor_labels(machine({"model": "host-model"}), source, other) == OF_HOST


def test_a_named_model_and_features_are_asked_for_as_far_as_the_source_has_them() -> None:
    features = [{"name": "avx2"}, {"name": "unheard-of"}, {"name": "vmx", "policy": "disable"}]
    wanted = target.processor_labels(machine({"model": "Nehalem", "features": features}), None, NODE_LABELS)
    assert wanted == {
        "cpu-model.node.kubevirt.io/Nehalem": "true",
        "cpu-feature.node.kubevirt.io/avx2": "true",
        "cpu-vendor.node.kubevirt.io/Intel": "true",
    }


def test_an_obsolete_model_of_the_host_is_not_asked_for() -> None:
    old = {"host-model-cpu.node.kubevirt.io/486": "true"}
    assert target.processor_labels(machine(), None, old) == {}


def test_the_target_must_have_the_processor_even_if_no_node_has() -> None:
    move = Move("job", "job-uid", {"zone": "a"}, OF_HOST)
    rendered = render(machine(), replace(CONFIG, node_labels=[{}], move=move))
    assert OF_HOST.items() <= rendered.spec.node_selector.items()
    assert rendered.spec.node_selector["zone"] == "a"


def test_the_target_has_room_for_what_the_machine_has_grown_to() -> None:
    """Asked for at its start: one socket. It has two, and is to have three."""
    cpu = {"sockets": 3, "maxSockets": 4}
    grown = machine(
        cpu,
        currentCPUTopology={"sockets": 2, "cores": 1, "threads": 1},
        memory={"guestAtBoot": "128Mi", "guestCurrent": "256Mi"},
        podRoom={"sockets": 2, "guest": "256Mi"},
    )
    size = target.grown(grown).spec.domain
    assert size.cpu is not None
    assert size.memory is not None
    assert (size.cpu.sockets, size.memory.guest) == (3, "256Mi")


def test_a_machine_that_grows_meanwhile_is_not_squeezed_into_its_target() -> None:
    """By what its target was made for: others may have changed what that asks for."""
    one, two = (machine({"sockets": n, "maxSockets": 4}, activePods={POD_UID: NODE}) for n in (1, 2))
    for made_for, wanted, fits in ((one, one, True), (one, two, False), (two, one, True)):
        made = pod()
        made.metadata.annotations |= target.room_note(made_for)
        decision = decided(job("Scheduling"), wanted, made)
        assert (decision.vmi is not None) is fits
        assert fits or "more CPUs or memory" in reason(decision)
    unreadable = pod()
    unreadable.metadata.annotations[names.ANNOTATION_TARGET_ROOM] = "?"
    assert decided(job("Scheduling"), two, unreadable).vmi is not None


def test_nics_that_the_machine_still_has_come_with_it() -> None:
    """One that is being unplugged is in the domain until the guest lets go of it."""
    networks = [{"name": n, "multus": {"networkName": n}} for n in ("blue", "red")]
    nics = [{"name": "blue", "bridge": {}}, {"name": "red", "bridge": {}, "state": "absent"}]
    vmi = handed_over(
        "Running",
        spec={"domain": {"devices": {"interfaces": nics}}, "networks": networks},
        status={"interfaces": [{"name": "red", "infoSource": "domain, multus-status"}]},
    )
    moved = render(vmi, replace(CONFIG, move=Move("job", "uid")))
    asked = selections(moved.metadata.annotations[names.ANNOTATION_NETWORKS])
    assert [each.name for each in asked] == ["blue", "red"]
    fresh = selections(render(vmi, CONFIG).metadata.annotations[names.ANNOTATION_NETWORKS])
    assert [each.name for each in fresh] == ["blue"]


# Hot-plugged volumes


def holder(state: str = "Running") -> Pod:
    plain = {
        "metadata": {"name": "hp-volume-x", "uid": "hp", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"phase": state, "containerStatuses": [{"name": "c", "ready": state == "Running"}]},
    }
    return from_plain(plain, Pod)


def test_hot_plugged_volumes_are_brought_before_the_nodes_hear_of_it() -> None:
    nobody, coming, there = Bringing(), Bringing(holder("Pending")), Bringing(holder())
    first = decided(job("Scheduling"), machine(), pod(), chance=replace(FREE, volumes=nobody))
    assert (first.create_attachment, first.vmi) == (True, None)
    second = decided(job("Scheduling"), machine(), pod(), chance=replace(FREE, volumes=coming))
    assert (second.create_attachment, second.vmi, phase(second)) == (False, None, "Scheduling")
    third = decided(job("Scheduling"), machine(activePods={POD_UID: NODE}), pod(), chance=replace(FREE, volumes=there))
    assert third.vmi is not None
    assert third.vmi.status.migration_state is not None
    assert third.vmi.status.migration_state.target_attachment_pod_uid == "hp"


def test_a_volume_that_is_just_going_holds_the_machine() -> None:
    vmi = hot_plugged("data", status=[told("data", "Ready"), told("gone", "Ready")])
    assert reason(decided(job(), vmi)).startswith('volume "gone" is being unplugged')
    over = decided(job("Scheduling"), vmi, pod())
    assert reason(over).startswith('volume "gone"')
    assert [each.metadata.uid for each in over.delete_pods] == ["t"]


def test_the_guest_leaves_its_launcher_and_not_what_brings_its_volumes() -> None:
    """Both are on its node, and both are recorded."""
    ready = told("data", "Ready", hotplugVolume={"attachPodName": "hp", "attachPodUID": "attached"})
    vmi = hot_plugged("data", status=[ready])
    vmi.status.node_name, vmi.status.active_pods = NODE, {POD_UID: NODE}
    handed = decided(job("Scheduling"), vmi, pod(), running_pod(), chance=replace(FREE, volumes=Bringing(holder())))
    assert handed.vmi is not None
    assert handed.vmi.status.active_pods == {POD_UID: NODE, "t": OTHER}
    assert handed.vmi.status.migration_state is not None
    assert handed.vmi.status.migration_state.source_pod == running_pod().metadata.name


@pytest.mark.parametrize(("state", "late_s"), [("Pending", PENDING_S), ("Failed", 0)])
def test_volumes_that_do_not_come_end_the_job_with_their_reason(state: str, late_s: float) -> None:
    chance = replace(FREE, volumes=Bringing(holder(state)))
    over = decided(job("Scheduling"), machine(), pod(), chance=chance, late_s=late_s)
    assert f"cannot be brought to node {OTHER}" in reason(over)
    assert state in reason(over)


def put_pod(kube: FakeKube, made: Pod, owner: Pod | None = None) -> None:
    plain = plain_object(made)
    if owner is not None:
        ref = {"apiVersion": "v1", "kind": "Pod", "name": owner.metadata.name, "uid": owner.metadata.uid}
        plain["metadata"] |= {
            "ownerReferences": [ref | {"controller": True}],
            "annotations": {names.ANNOTATION_OWNER_VMI_NAME: "vm"},
            "labels": plain["metadata"].get("labels", {}) | {"kubevirt.io": "hotplug-disk"},
        }
    kube.put(f"{NAMESPACE}/pods/{made.metadata.name}", plain)


def launcher(name: str, uid: str, node: str, state: str) -> Pod:
    made = running_pod()
    made.metadata.name, made.metadata.uid, made.spec.node_name, made.status.phase = name, uid, node, state
    return made


def test_after_the_move_the_pod_that_came_along_holds_the_volumes() -> None:
    """It is no stranger, though another controller made it; the one that the guest has left holds them no more."""
    vmi = hot_plugged("data", status=[told("data", "Ready", hotplugVolume={"attachPodName": "hp-volume-1"})])
    move = {"migrationUid": "job", "targetNode": OTHER, "completed": True, "targetAttachmentPodUID": "hp-2"}
    vmi.status.migration_state = from_plain(move, MoveState)
    vmi.status.node_name, vmi.status.active_pods = OTHER, {POD_UID: NODE, "t": OTHER}
    left, here = launcher("left", POD_UID, NODE, "Succeeded"), launcher("here", "t", OTHER, "Running")
    with fake_kube() as kube, ExitStack() as stack:
        for each in (left, here):
            put_pod(kube, each)
        put_pod(kube, volume_holder(1, "data"), left)
        put_pod(kube, volume_holder(2, "data"), here)
        kube.put(f"{NAMESPACE}/persistentvolumeclaims/data", plain_object(claim("data")))
        kube.put(VMI, plain_object(vmi))
        start(kube, stack)
        eventually(lambda: [p["metadata"]["name"] for p in attached(kube)] == ["hp-volume-2"], within_s=10)

        def volume() -> dict[str, Any]:
            return dict(kube.objects[VMI]["status"]["volumeStatus"][0])

        eventually(lambda: volume()["hotplugVolume"].get("attachPodUID") == "hp-2", within_s=10)
        assert volume()["phase"] == "Ready"
        assert [p["metadata"]["name"] for p in attached(kube)] == ["hp-volume-2"]


def test_what_the_machine_has_is_brought_and_found_again() -> None:
    """Also by a leader that did not make the Pod itself."""
    vmi = hot_plugged("data", "later", status=[told("data", "Ready"), told("later", "Pending")])
    here = launcher("here", "t", OTHER, "Running")
    with fake_kube() as kube, ExitStack() as stack:
        client = kube.client()
        claims, filled = Informer(client, PersistentVolumeClaim), Informer(client, DataVolume, optional=True)
        pods = Informer(
            client, Pod, label_selector="kubevirt.io=hotplug-disk", indexers={LAUNCHER_INDEX: launcher_indexer}
        )
        for name, state in (("data", "Bound"), ("later", "Pending")):
            kube.put(f"{NAMESPACE}/persistentvolumeclaims/{name}", plain_object(claim(name, state)))
        for informer in (claims, filled, pods):
            stack.enter_context(running(informer.run))
        eventually(lambda: len(claims.list()) == 2, within_s=10)
        bringer = Bringer(client, pods, claims, filled)
        assert bringer.look(job(), hot_plugged("later", status=[told("later", "Pending")]), here) is None
        assert bringer.look(job(), vmi, here) == Bringing()
        made = bringer.create(job(), vmi, here)
        assert claims_of(made) == {"data"}
        (selector,) = affinity_terms(made)
        assert selector == {"key": "kubernetes.io/hostname", "operator": "In", "values": [OTHER]}
        found = bringer.look(job(), vmi, here)
        assert found is not None
        assert found.pod is not None
        assert found.pod.metadata.uid == made.metadata.uid
        another = Bringer(client, pods, claims, filled)
        eventually(lambda: (seen := another.look(job(), vmi, here)) is not None and seen.pod is not None, within_s=10)


def affinity_terms(made: Pod) -> list[dict[str, Any]]:
    required = to_plain(made)["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [each for term in required["nodeSelectorTerms"] for each in term["matchExpressions"]]
