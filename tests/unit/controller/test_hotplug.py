"""Attachment Pods and the phases of hot-plugged volumes, as virt-controller decides them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.vmis import NODE, POD_UID, UID, handed_over, running_pod
from framework.waiting import eventually, running

from virt_controller.hotplug.controller import LAUNCHER_INDEX, HotplugController, launcher_indexer
from virt_controller.hotplug.decide import Pods, decide, sorted_out
from virt_controller.hotplug.render import attachment_pod
from virt_controller.hotplug.statuses import statuses
from virt_controller.hotplug.wanted import Storage, Wanted, wanted
from virt_controller.vmi.controller import OWNER_INDEX, owner_indexer
from virt_controller.vmi.decide import decide as decide_vmi
from virt_controller.vmi.decide import scheduling
from virt_controller.vmi.owned import Surroundings, needed_claims
from virt_controller.vmi.surroundings import VOLUME_INDEX, vmi_volumes
from virt_core.apis import names
from virt_core.apis.base import from_plain, to_plain
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.pods import Pod
from virt_core.apis.registry import plain_object
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.apis.vmistatus import VolumeStatus
from virt_core.kube.controller import Controller
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import SystemClock

NAMESPACE = "/api/v1/namespaces/default"
VMI = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm"


def claim(name: str, phase: str = "Bound", **spec: Any) -> PersistentVolumeClaim:
    return from_plain(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec},
            "status": {"phase": phase},
        },
        PersistentVolumeClaim,
    )


def machine(
    *volumes: str, status: list[dict[str, Any]] | None = None, phase: str = "Running"
) -> VirtualMachineInstance:
    """With hot-plugged volumes that are called like their claims."""
    spec = [{"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": True}} for name in volumes]
    return handed_over(phase, spec={"volumes": spec}, status={"volumeStatus": status or []})


def told(name: str, phase: str, claim: str = "", **more: Any) -> dict[str, Any]:
    info = {"claimName": claim or name}
    return {"name": name, "phase": phase, "persistentVolumeClaimInfo": info, "hotplugVolume": {}, **more}


def holder(number: int, *claims: str, phase: str = "Running", **metadata: Any) -> Pod:
    ready = [{"name": "hotplug-disk", "ready": phase == "Running"}]
    return from_plain(
        {
            "metadata": {
                "name": f"hp-volume-{number}",
                "namespace": "default",
                "uid": f"hp-{number}",
                "creationTimestamp": f"2026-01-01T00:00:0{number}Z",
                **metadata,
            },
            "spec": {"volumes": [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]},
            "status": {"phase": phase, "containerStatuses": ready},
        },
        Pod,
    )


def of(*names_: str) -> list[Wanted]:
    return [Wanted(name, name) for name in names_]


def bound(*names_: str) -> Storage:
    return Storage({name: claim(name) for name in names_})


def named(pods: tuple[Pod, ...]) -> list[str]:
    return [pod.metadata.name for pod in pods]


# What is wanted


def test_what_the_launcher_has_from_its_start_is_not_plugged_again() -> None:
    """Launcher Pods of an older release had such volumes themselves."""
    vmi = machine("old", "new")
    launcher = running_pod()
    launcher.spec.volumes = holder(1, "old").spec.volumes
    assert wanted(vmi, launcher) == [Wanted("new", "new")]


def test_a_claim_that_may_come_later_does_not_hold_up_the_launcher() -> None:
    vmi = machine("data")
    assert (needed_claims(vmi), vmi_volumes(vmi)) == ([], ["default/data"])


def test_the_hand_over_says_which_volumes_are_on_their_way() -> None:
    """Else the node would start the guest without them."""
    waiting = machine("data", phase="Pending")
    waiting.status.node_name = ""
    before = scheduling(waiting, POD_UID, SystemClock().now())
    decision = decide_vmi(before, [running_pod()], SystemClock().now(), Surroundings(claims={"data": claim("data")}))
    assert decision.vmi is not None
    (volume,) = decision.vmi.status.volume_status
    assert (volume.name, volume.phase, volume.hotplug_volume is not None) == ("data", "Pending", True)


# Pods


def test_one_pod_for_all_that_is_ready() -> None:
    storage = Storage({"a": claim("a"), "b": claim("b"), "c": claim("c", "Lost")}, {"b": "Succeeded"})
    _, decision = decide(machine("a", "b", "c"), of("a", "b", "c", "none"), storage, [])
    assert decision.create == tuple(of("a", "b"))


@pytest.mark.parametrize("phase", ["ImportInProgress", "Pending", "Failed"])
def test_a_data_volume_that_is_not_filled_waits(phase: str) -> None:
    _, decision = decide(machine("a"), of("a"), Storage({"a": claim("a")}, {"a": phase}), [])
    assert not decision.create
    assert not decision.trigger


def test_nothing_is_made_for_a_vmi_that_ends_or_has_not_begun() -> None:
    for vmi in (machine("a", phase="Scheduling"), machine("a", phase="Failed")):
        assert not decide(vmi, of("a"), bound("a"), [])[1].create


def test_pods_of_a_vmi_that_is_over_go() -> None:
    _, decision = decide(machine("a", phase="Succeeded"), of("a"), bound("a"), [holder(1, "a")])
    assert named(decision.delete) == ["hp-volume-1"]


def test_the_successor_comes_first_and_then_the_old_one_goes() -> None:
    vmi = machine("a", "b", status=[told("a", "Ready")])
    old = holder(1, "a")
    _, decision = decide(vmi, of("a", "b"), bound("a", "b"), [old])
    assert (decision.create, decision.delete) == (tuple(of("a", "b")), ())
    for phase, gone in (("Pending", []), ("Running", ["hp-volume-1"])):
        found, decision = decide(vmi, of("a", "b"), bound("a", "b"), [old, holder(2, "a", "b", phase=phase)])
        assert found.current is not None
        assert (found.current.metadata.name, decision.create) == ("hp-volume-2", ())
        assert named(decision.delete) == gone


def test_a_volume_that_the_guest_still_has_keeps_its_pod() -> None:
    """Unplugged: the guest lets go, the node unmounts, and only then the Pod may go."""
    for phase, gone in (("Ready", []), ("MountedToPod", []), ("UnMountedFromPod", ["hp-volume-1"])):
        vmi = machine(status=[told("a", phase)])
        _, decision = decide(vmi, [], bound("a"), [holder(1, "a")])
        assert named(decision.delete) == gone, phase


def test_no_second_pod_while_one_is_starting_and_what_ended_is_replaced() -> None:
    vmi = machine("a", "b")
    _, decision = decide(vmi, of("a", "b"), bound("a", "b"), [holder(1, "a", phase="Pending")])
    assert (decision.create, named(decision.delete)) == ((), ["hp-volume-1"])
    vmi = machine("a", status=[told("a", "Ready")])
    _, decision = decide(vmi, of("a"), bound("a"), [holder(1, "a", phase="Failed")])
    assert (decision.create, named(decision.delete)) == (tuple(of("a")), ["hp-volume-1"])


def test_a_claim_that_waits_for_its_first_user_gets_one() -> None:
    storage = Storage({"a": claim("a", "Pending")})
    _, decision = decide(machine("a"), of("a"), storage, [])
    assert (decision.create, decision.trigger) == ((), tuple(of("a")))
    helper = holder(1, "a", phase="Pending", annotations={names.ANNOTATION_EPHEMERAL_PROVISIONING: "true"})
    _, decision = decide(machine("a"), of("a"), storage, [helper])
    assert (decision.trigger, decision.delete) == ((), ())
    _, decision = decide(machine("a"), of("a"), bound("a"), [helper])
    assert (decision.create, named(decision.delete)) == (tuple(of("a")), ["hp-volume-1"])


def test_the_pod_of_two_claims() -> None:
    storage = Storage({"a": claim("a"), "raw": claim("raw", volumeMode="Block")})
    launcher = running_pod()
    launcher.spec.node_name = NODE
    pod = attachment_pod(machine("a", "raw"), launcher, [Wanted("a", "a", True), Wanted("raw", "raw")], storage)
    plain = to_plain(pod)
    (container,) = plain["spec"]["containers"]
    assert container["volumeMounts"] == [{"name": "a", "mountPath": "/hotplug/a", "readOnly": True}]
    assert container["volumeDevices"] == [{"name": "raw", "devicePath": "/dev/hotplug/raw"}]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert plain["metadata"]["generateName"] == "hp-volume-"
    assert plain["metadata"]["labels"] == {"kubevirt.io": "hotplug-disk"}
    (owner,) = plain["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", POD_UID, True)
    assert plain["metadata"]["annotations"] == {"kubevirt.io/owner-vmi-name": "vm", "kubevirt.io/owner-vmi-uid": UID}
    (term,) = plain["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [{"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]
    keys = [each["key"] for each in plain["spec"]["tolerations"]]
    assert (keys, len(keys)) == (sorted(keys), 5)
    assert plain["spec"]["terminationGracePeriodSeconds"] == 0
    assert plain["spec"]["automountServiceAccountToken"] is False
    assert "hostUsers" not in plain["spec"]


# Phases


def phases(vmi: VirtualMachineInstance, asked: list[Wanted], storage: Storage, pods: Pods) -> dict[str, VolumeStatus]:
    found = statuses(vmi, asked, storage, pods)
    assert [each.name for each in found] == sorted(each.name for each in found)
    return {each.name: each for each in found}


@pytest.mark.parametrize(
    ("storage", "pods", "expected"),
    [
        (Storage(), [], ("Pending", "FailedPvcNotFound", "PVC a not found")),
        (Storage({"a": claim("a", "Lost")}), [], ("Pending", "PVCNotReady", "PVC is in phase Lost")),
        (
            Storage({"a": claim("a")}, {"a": "ImportInProgress"}),
            [],
            ("Pending", "PVCNotReady", "DataVolume a is in phase ImportInProgress"),
        ),
        (bound("a"), [], ("Bound", "PVCNotReady", "PVC is in phase Bound")),
        (
            bound("a"),
            [holder(1, "a", phase="Pending")],
            ("AttachedToNode", "SuccessfulCreate", "Created hotplug attachment pod hp-volume-1, for volume a"),
        ),
    ],
)
def test_how_far_a_volume_is(storage: Storage, pods: list[Pod], expected: tuple[str, str, str]) -> None:
    ready = [each for each in of("a") if storage.is_ready(each.claim)]
    found = phases(machine("a"), of("a"), storage, sorted_out(pods, ready))["a"]
    assert (found.phase, found.reason, found.message) == expected
    assert found.hotplug_volume is not None
    assert found.hotplug_volume.attach_pod_uid == ""


def test_the_node_learns_of_a_pod_when_it_runs_and_no_longer_when_it_does_not() -> None:
    vmi = machine("a", status=[told("a", "Ready", target="sda")])
    for pods, uid in (([holder(1, "a")], "hp-1"), ([holder(1, "a", phase="Failed")], "")):
        found = phases(vmi, of("a"), bound("a"), sorted_out(pods, of("a")))["a"]
        assert found.hotplug_volume is not None
        assert (found.phase, found.target, found.hotplug_volume.attach_pod_uid) == ("Ready", "sda", uid)


def test_a_volume_goes_only_when_the_node_has_let_it_go() -> None:
    pods = Pods(old=(holder(1, "a"),))
    for before, after in (
        ("Ready", "Ready"),
        ("MountedToPod", "MountedToPod"),
        ("UnMountedFromPod", "Detaching"),
        ("AttachedToNode", "Detaching"),
    ):
        assert phases(machine(status=[told("a", before)]), [], bound("a"), pods)["a"].phase == after
        left = phases(machine(status=[told("a", before)]), [], bound("a"), Pods())
        assert ("a" in left) is (before in ("Ready", "MountedToPod")), "no Pod holds it"


def test_a_volume_that_comes_back_while_it_goes_begins_anew() -> None:
    vmi = machine("a", status=[told("a", "Detaching", target="sda")])
    found = phases(vmi, of("a"), bound("a"), Pods())["a"]
    assert (found.phase, found.target) == ("Bound", "")


def test_permanent_volumes_stay_as_they_are() -> None:
    vmi = machine("a", status=[{"name": "root", "target": "vda"}])
    assert phases(vmi, of("a"), bound("a"), Pods())["root"] == VolumeStatus(name="root", target="vda")


# The controller


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as kube:
        yield kube


def start(kube: FakeKube, stack: ExitStack) -> None:
    client = kube.client()
    vmis = Informer(client, VirtualMachineInstance, indexers={VOLUME_INDEX: vmi_volumes})
    launchers = Informer(client, Pod, label_selector="kubevirt.io=virt-launcher", indexers={OWNER_INDEX: owner_indexer})
    attachments = Informer(
        client, Pod, label_selector="kubevirt.io=hotplug-disk", indexers={LAUNCHER_INDEX: launcher_indexer}
    )
    claims, filled = Informer(client, PersistentVolumeClaim), Informer(client, DataVolume, optional=True)
    queue, recorder = WorkQueue(SystemClock(), "hotplug"), EventRecorder(client, "virt-controller")
    controller = HotplugController(
        client,
        queue=queue,
        vmis=vmis,
        launchers=launchers,
        attachments=attachments,
        claims=claims,
        data_volumes=filled,
        recorder=recorder,
        clock=SystemClock(),
    )
    informers = (vmis, launchers, attachments, claims, filled)
    for informer in informers:
        stack.enter_context(running(informer.run))
    stack.enter_context(running(recorder.run))
    stack.enter_context(running(Controller("hotplug", queue, controller.reconcile, 1, informers).run))


def attached(kube: FakeKube) -> list[dict[str, Any]]:
    return kube.select(f"{NAMESPACE}/pods", {"labelSelector": "kubevirt.io=hotplug-disk"})


def test_a_volume_is_brought_and_a_stranger_turned_away(kube: FakeKube) -> None:
    """Whoever calls his Pod an attachment brings no volume to a machine."""
    launcher = running_pod()
    launcher.spec.node_name = NODE
    kube.put(f"{NAMESPACE}/pods/{launcher.metadata.name}", plain_object(launcher))
    kube.put(VMI, plain_object(machine("data")))
    kube.put(f"{NAMESPACE}/persistentvolumeclaims/data", plain_object(claim("data")))
    false = plain_object(holder(9, "data", labels={"kubevirt.io": "hotplug-disk"}))
    false["metadata"]["annotations"] = {names.ANNOTATION_OWNER_VMI_NAME: "vm"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": launcher.metadata.name, "uid": POD_UID, "controller": True}
    false["metadata"]["ownerReferences"] = [owner]
    kube.put(f"{NAMESPACE}/pods/hp-volume-9", false)
    with ExitStack() as stack:
        start(kube, stack)
        (pod,) = eventually(lambda: [p for p in attached(kube) if p["metadata"]["name"] != "hp-volume-9"], within_s=10)
        eventually(lambda: len(attached(kube)) == 1, within_s=10)

        def volume() -> dict[str, Any]:
            return dict(next(iter(kube.objects[VMI]["status"].get("volumeStatus", [])), {}))

        eventually(lambda: volume().get("phase") == "AttachedToNode", within_s=10)
        path = f"{NAMESPACE}/pods/{pod['metadata']['name']}"
        ready = {"phase": "Running", "containerStatuses": [{"name": "hotplug-disk", "ready": True}]}
        kube.put(path, {**kube.objects[path], "status": ready})
        eventually(lambda: volume()["hotplugVolume"].get("attachPodUID") == pod["metadata"]["uid"], within_s=10)


def with_utility_volume(status: list[dict[str, Any]] | None = None) -> VirtualMachineInstance:
    utility = [{"name": "u", "claimName": "c", "type": "Backup"}]
    return handed_over("Running", spec={"utilityVolumes": utility}, status={"volumeStatus": status or []})


def test_a_utility_volume_comes_and_goes_like_a_hot_plugged_one() -> None:
    storage = Storage({"c": claim("c")})
    before = with_utility_volume()
    asked = wanted(before, running_pod())
    found, decision = decide(before, asked, storage, [])
    assert [each.name for each in decision.create] == ["u"]
    [status] = statuses(before, asked, storage, found)
    assert (status.name, status.phase) == ("u", names.VOLUME_BOUND)
    pod = holder(1, "c")
    [status] = statuses(before, asked, storage, Pods(pod))
    assert (status.phase, status.hotplug_volume and status.hotplug_volume.attach_pod_uid) == ("AttachedToNode", "hp-1")
    gone = handed_over("Running", status={"volumeStatus": [told("u", names.VOLUME_UNMOUNTED, "c")]})
    found, decision = decide(gone, wanted(gone, running_pod()), storage, [pod])
    assert list(decision.delete) == [pod]
    assert [each.phase for each in statuses(gone, [], storage, found)] == [names.VOLUME_DETACHING]


def test_a_utility_volume_is_a_directory_so_a_block_device_is_none() -> None:
    storage = Storage({"c": claim("c", volumeMode="Block")})
    before = with_utility_volume()
    asked = wanted(before, running_pod())
    found, decision = decide(before, asked, storage, [])
    assert decision.create == ()
    [status] = statuses(before, asked, storage, found)
    assert (status.phase, status.reason) == (names.VOLUME_PENDING, names.REASON_PVC_NOT_READY)
    assert "must have a filesystem" in status.message
