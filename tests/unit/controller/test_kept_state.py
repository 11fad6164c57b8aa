"""The claim that keeps what firmware and TPM store: made once, for the VM, of the right class, and used as it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from framework.fake_kube import fake_kube
from framework.vmis import POD_UID, UID, plain_vmi, running_pod, vmi
from framework.waiting import eventually, running
from tests.unit.controller.test_vmi_storage import NAMESPACE, VMI, Rig

from virt_controller.launcher_pod import TemplateConfig, UnsupportedSpecError, render
from virt_controller.vmi.decide import CLAIM_RECHECK_S, Decision, decide, scheduling
from virt_controller.vmi.keptstate import access_mode, chosen, default_class
from virt_controller.vmi.owned import KeptState, Surroundings
from virt_controller.vmi.pods import Trouble
from virt_core.apis import names
from virt_core.apis.base import from_plain
from virt_core.apis.datavolume import StorageProfile
from virt_core.apis.storage import PersistentVolumeClaim, StorageClass
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.conditions import get_condition

NOW = datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
PROFILES = "/apis/cdi.kubevirt.io/v1beta1/storageprofiles"
CLAIMS = f"{NAMESPACE}/persistentvolumeclaims"
VM_UID = "vm-uid"
TPM = {"devices": {"tpm": {"persistent": True}}}
EFI = {"devices": {}, "firmware": {"bootloader": {"efi": {"persistent": True}}}}
DEFAULT = {names.ANNOTATION_DEFAULT_CLASS: "true"}


def plain_class(name: str, annotations: dict[str, str] | None = None, created: str = "", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "annotations": annotations or {}}
    if created:
        metadata["creationTimestamp"] = created
    return {"metadata": metadata, "provisioner": "example.com/disks", **more}


def plain_claim(name: str = "state", phase: str = "Bound", **metadata: Any) -> dict[str, Any]:
    labels = {names.LABEL_KEPT_STATE: "vm"}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"{name}-uid", "labels": labels} | metadata,
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Filesystem"},
        "status": {"phase": phase, "capacity": {"storage": "10Mi"}},
    }


def claim(*given: Any, **metadata: Any) -> PersistentVolumeClaim:
    return from_plain(plain_claim(*given, **metadata), PersistentVolumeClaim)


def owned(uid: str, kind: str = "VirtualMachineInstance") -> dict[str, Any]:
    return {"ownerReferences": [{"apiVersion": "kubevirt.io/v1", "kind": kind, "name": "vm", "uid": uid}]}


def made(rig: Rig) -> list[dict[str, Any]]:
    with rig.kube.changed:
        return [o for path, o in rig.kube.objects.items() if path.startswith(f"{CLAIMS}/")]


# -- which claim -----------------------------------------------------------------------------------------------------


def test_only_a_claim_of_its_own_owner_or_of_nobody_is_the_machines() -> None:
    """A former VM of that name leaves one that is on its way out; a migration fills one that is not whole yet."""
    strangers = [
        claim("former", **owned("another")),
        claim("going", deletionTimestamp="2026-01-01T00:00:00Z", **owned(UID)),
        claim("moving", labels={names.LABEL_KEPT_STATE: "vm", names.LABEL_MIGRATION_NAME: "job"}, **owned(UID)),
    ]
    assert chosen(strangers, vmi()) is None
    restored, own = claim("restored"), claim("own", **owned(UID))
    assert chosen([*strangers, restored], vmi()) is restored
    assert chosen([*strangers, own], vmi()) is own


def test_of_several_claims_the_oldest_is_used() -> None:
    young = claim("a", creationTimestamp="2026-01-02T00:00:00Z", **owned(UID))
    old = claim("b", creationTimestamp="2026-01-01T00:00:00Z", **owned(UID))
    assert chosen([young, old], vmi()) is old


# -- of which class --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "name"),
    [
        ([plain_class("a"), plain_class("b", DEFAULT)], "b"),
        ([plain_class("a", DEFAULT), plain_class("b", {names.ANNOTATION_DEFAULT_VIRT_CLASS: "true"})], "b"),
        ([plain_class("a", DEFAULT, "2026-01-01T00:00:00Z"), plain_class("b", DEFAULT, "2026-01-02T00:00:00Z")], "b"),
        ([plain_class("b", DEFAULT), plain_class("a", DEFAULT)], "a"),
        ([plain_class("a"), plain_class("b", {names.ANNOTATION_DEFAULT_CLASS: "false"})], ""),
    ],
)
def test_the_default_class_for_machines_goes_before_the_clusters(classes: list[Any], name: str) -> None:
    found = default_class(from_plain(each, StorageClass) for each in classes)
    assert (found.metadata.name if found is not None else "") == name


@pytest.mark.parametrize(
    ("sets", "named", "mode"),
    [
        (None, False, "ReadWriteOnce"),
        (None, True, "ReadWriteMany"),
        ([{"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}], True, "ReadWriteOnce"),
        ([{"accessModes": ["ReadWriteOnce"]}, {"accessModes": ["ReadWriteMany"]}], False, "ReadWriteMany"),
        ([{"accessModes": ["ReadWriteMany"], "volumeMode": "Block"}], False, "ReadWriteOnce"),
    ],
)
def test_the_access_mode_is_the_best_that_the_class_has_for_files(sets: Any, named: bool, mode: str) -> None:
    profile = from_plain({"status": {"claimPropertySets": sets}}, StorageProfile) if sets is not None else None
    assert access_mode(profile, named=named) == mode


# -- what is decided -------------------------------------------------------------------------------------------------


def test_no_pod_before_the_claim_can_be_used() -> None:
    trouble = Trouble(names.REASON_STATE_NOT_READY, "not bound")
    assert decide(vmi(), [], NOW, Surroundings(state=KeptState(missing=True))) == Decision(create_state=True)
    quiet = decide(vmi(), [], NOW, Surroundings(state=KeptState(claim=claim(), trouble=trouble, quiet_s=2.0)))
    assert quiet == Decision(recheck_s=2.0)
    waits = decide(vmi(), [], NOW, Surroundings(state=KeptState(claim=claim(), trouble=trouble)))
    assert (waits.create_pod, waits.recheck_s) == (False, CLAIM_RECHECK_S)
    assert waits.vmi is not None
    told = get_condition(waits.vmi.status.conditions, names.CONDITION_SYNCHRONIZED)
    assert told is not None
    assert (told.status, told.reason, told.message) == ("False", names.REASON_STATE_NOT_READY, "not bound")
    assert decide(waits.vmi, [], NOW, Surroundings(state=KeptState(claim=claim()))).create_pod


def test_the_node_is_told_of_the_claim() -> None:
    before = scheduling(vmi(), POD_UID, NOW)
    decision = decide(before, [running_pod()], NOW, Surroundings(state=KeptState(claim=claim())))
    assert decision.vmi is not None
    (volume,) = decision.vmi.status.volume_status
    assert volume.name == "persistent-state-for-this-vm"
    assert volume.persistent_volume_claim_info is not None
    assert volume.persistent_volume_claim_info.claim_name == "state"


# -- in the Pod ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("domain", "parts"), [(TPM, ["meta", "swtpm", "swtpm-localca"]), (EFI, ["meta", "nvram"]), ({"devices": {}}, [])]
)
def test_the_launcher_gets_the_directories_that_its_machine_needs(domain: Any, parts: list[str]) -> None:
    pod = render(vmi(spec={"domain": domain}), TemplateConfig("launcher:v1", state_claim="state"))
    mounts = [m for m in pod.spec.containers[0].volume_mounts if m.name == names.VOLUME_KEPT_STATE]
    assert [(m.sub_path, m.mount_path) for m in mounts] == [(p, f"{names.PATH_KEPT_STATE}/{p}") for p in parts]
    volumes = [v.persistent_volume_claim for v in pod.spec.volumes if v.name == names.VOLUME_KEPT_STATE]
    assert [v.claim_name for v in volumes if v is not None] == (["state"] if parts else [])


def test_no_launcher_without_the_claim() -> None:
    with pytest.raises(UnsupportedSpecError, match="no claim"):
        render(vmi(spec={"domain": TPM}), TemplateConfig("launcher:v1"))


# -- all together ----------------------------------------------------------------------------------------------------


def test_a_claim_is_made_once_and_the_pod_follows_when_it_is_bound() -> None:
    with fake_kube() as kube:
        kube.put(f"{CLASSES}/fast", plain_class("fast", DEFAULT))
        kube.put(
            f"{PROFILES}/fast",
            {"metadata": {"name": "fast"}, "status": {"claimPropertySets": [{"accessModes": ["ReadWriteMany"]}]}},
        )
        rig = Rig(kube)
        kube.put(VMI, plain_vmi(spec={"domain": TPM}))
        with running(*rig.bodies):
            eventually(lambda: made(rig))
            (found,) = made(rig)
            kube.put(VMI, kube.objects[VMI] | {"metadata": kube.objects[VMI]["metadata"] | {"labels": {"a": "b"}}})
            path = f"{CLAIMS}/{found['metadata']['name']}"
            kube.put(path, found | {"status": {"phase": "Bound"}})
            eventually(lambda: len(rig.pods()) == 1)
        assert len(made(rig)) == 1
    assert found["metadata"]["name"].startswith("persistent-state-for-vm-")
    assert found["metadata"]["labels"] == {names.LABEL_KEPT_STATE: "vm", names.LABEL_APPLY_STORAGE_PROFILE: "true"}
    assert [ref["uid"] for ref in found["metadata"]["ownerReferences"]] == [UID]
    assert found["spec"]["accessModes"] == ["ReadWriteMany"]
    assert found["spec"]["resources"] == {"requests": {"storage": "10Mi"}}
    assert (found["spec"]["storageClassName"], found["spec"]["volumeMode"]) == ("fast", "Filesystem")


def test_a_claim_that_waits_for_its_first_user_gets_the_launcher() -> None:
    with fake_kube() as kube:
        kube.put(f"{CLASSES}/fast", plain_class("fast", volumeBindingMode="WaitForFirstConsumer"))
        kube.put(f"{CLAIMS}/state", plain_claim(phase="Pending", **owned(UID)))
        rig = Rig(kube)
        kube.put(VMI, plain_vmi(spec={"domain": TPM}))
        with running(*rig.bodies):
            eventually(lambda: len(rig.pods()) == 1)
        assert [each["metadata"]["name"] for each in made(rig)] == ["state"]


@pytest.mark.parametrize(
    ("phase", "reason"), [("Pending", names.REASON_STATE_NOT_READY), ("Lost", names.REASON_STATE_LOST)]
)
def test_a_claim_that_cannot_be_used_is_the_reason_that_the_vmi_gives(phase: str, reason: str) -> None:
    with fake_kube() as kube:
        kube.put(f"{CLASSES}/fast", plain_class("fast"))
        kube.put(f"{CLAIMS}/state", plain_claim(phase=phase, creationTimestamp="2000-01-01T00:00:00Z", **owned(UID)))
        rig = Rig(kube)
        kube.put(VMI, plain_vmi(spec={"domain": TPM}))
        with running(*rig.bodies):
            eventually(lambda: rig.condition("Synchronized") == reason)
        assert rig.pods() == []


def test_without_a_class_nothing_is_made_and_the_vmi_says_so() -> None:
    with fake_kube() as kube:
        rig = Rig(kube)
        kube.put(VMI, plain_vmi(spec={"domain": TPM}))
        with running(*rig.bodies):
            eventually(lambda: rig.condition("Synchronized") == names.REASON_STATE_NOT_CREATED)
        assert made(rig) == []
        assert rig.pods() == []


def test_what_is_no_longer_kept_is_removed_at_the_next_start_and_nothing_else() -> None:
    with fake_kube() as kube:
        kube.put(f"{CLAIMS}/own", plain_claim("own", **owned(UID)))
        kube.put(f"{CLAIMS}/restored", plain_claim("restored"))
        rig = Rig(kube)
        kube.put(VMI, plain_vmi())
        with running(*rig.bodies):
            eventually(lambda: len(rig.pods()) == 1)
        assert [each["metadata"]["name"] for each in made(rig)] == ["restored"]


def test_the_claim_of_a_saved_state_is_in_the_pod_that_goes_on_from_it_and_in_no_other() -> None:
    note = {names.ANNOTATION_RESUME_FROM: '{"claim":"sleep","file":"f.machine.state"}'}
    body = plain_vmi()
    body["metadata"]["annotations"] = note
    pod = render(from_plain(body, VirtualMachineInstance), TemplateConfig(launcher_image="launcher"))
    (volume,) = [v for v in pod.spec.volumes if v.name == names.VOLUME_MACHINE_STATE]
    assert volume.persistent_volume_claim is not None
    assert volume.persistent_volume_claim.claim_name == "sleep"
    (mount,) = [m for m in pod.spec.containers[0].volume_mounts if m.name == volume.name]
    assert mount.mount_path == names.PATH_MACHINE_STATE
    plain = render(vmi(), TemplateConfig(launcher_image="launcher"))
    assert names.VOLUME_MACHINE_STATE not in {v.name for v in plain.spec.volumes}
    body["metadata"]["annotations"] = {names.ANNOTATION_RESUME_FROM: "nothing"}
    with pytest.raises(UnsupportedSpecError):
        render(from_plain(body, VirtualMachineInstance), TemplateConfig(launcher_image="launcher"))
