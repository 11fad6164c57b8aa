"""The controller of DataVolumes against an API: claim, Pod, status; and nothing at all where CDI is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_controller.datavolume.controller import DataVolumeController
from virt_controller.launcher_pod import TemplateConfig
from virt_controller.vmi.surroundings import VOLUME_INDEX, vmi_volumes
from virt_core.apis import names
from virt_core.apis.base import encode
from virt_core.apis.datavolume import LABEL_IMPORTER, DataVolume
from virt_core.apis.datavolumecrd import definition
from virt_core.apis.importplan import ImportReport, Progress
from virt_core.apis.pods import Pod
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.controller import Result
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/datavolumes.cdi.kubevirt.io"
VOLUME = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes/disk"
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/disk"
POD = "/api/v1/namespaces/default/pods/importer-disk"


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as fake:
        yield fake


@dataclass
class World:
    controller: DataVolumeController
    kube: FakeKube
    volumes: Informer[DataVolume]
    claims: Informer[PersistentVolumeClaim]
    pods: Informer[Pod]
    progress: list[Progress | None] = field(default_factory=lambda: [None])

    def look(self) -> Result | None:
        """After the live copies show what the API has."""
        eventually(lambda: all(self._shown(*each) for each in self._pairs()))
        return self.controller.reconcile("default/disk")

    def _pairs(self) -> list[tuple[Informer[Any], str, str]]:
        return [(self.volumes, "default/disk", VOLUME), (self.claims, "default/disk", CLAIM),
                (self.pods, "default/importer-disk", POD)]  # fmt: skip

    def _shown(self, informer: Informer[Any], key: str, path: str) -> bool:
        found, wanted = informer.get(key), self.kube.objects.get(path)
        if found is None or wanted is None:
            return found is wanted
        return bool(found.metadata.resource_version == wanted["metadata"]["resourceVersion"])

    def change(self, path: str, **changes: Any) -> None:
        self.kube.put(path, {**self.kube.objects[path], **changes})

    def status(self) -> Any:
        return self.kube.objects[VOLUME].get("status", {})

    def told(self) -> list[str]:
        """The reasons of the Events that were written."""
        return [each["reason"] for path, each in list(self.kube.objects.items()) if "/events/" in path]


@contextmanager
def world(kube: FakeKube) -> Iterator[World]:
    client, clock = kube.client(), FakeClock()
    volumes, claims = Informer(client, DataVolume), Informer(client, PersistentVolumeClaim)
    pods = Informer(client, Pod, label_selector=f"{names.LABEL_APP}={names.APP_IMPORTER}")
    vmis = Informer(client, VirtualMachineInstance, indexers={VOLUME_INDEX: vmi_volumes})
    progress: list[Progress | None] = [None]
    ask: Callable[[Pod], Progress | None] = lambda _pod: progress[0]  # noqa: E731
    controller = DataVolumeController(
        client, queue=WorkQueue(clock), volumes=volumes, claims=claims, pods=pods, vmis=vmis, ask=ask,
        recorder=EventRecorder(client, "virt-controller"), clock=clock, template=TemplateConfig("image"),
    )  # fmt: skip
    with running(volumes.run, claims.run, pods.run, vmis.run):
        eventually(lambda: all(each.has_synced() for each in (volumes, claims, pods, vmis)))
        yield World(controller, kube, volumes, claims, pods, progress)


def volume(kube: FakeKube, **labels: str) -> None:
    kube.put(DEFINITION, definition() | {"metadata": {"name": "datavolumes.cdi.kubevirt.io", "labels": labels}})
    spec = {
        "source": {"http": {"url": "http://example.test/x"}},
        "storage": {"resources": {"requests": {"storage": "1Gi"}}},
    }
    kube.put(VOLUME, {"metadata": {"labels": {"a": "b"}}, "spec": spec})


def test_a_claim_is_made_filled_and_told(kube: FakeKube) -> None:
    volume(kube, **{LABEL_IMPORTER: "true"})
    with world(kube) as it:
        it.look()
        assert kube.objects[CLAIM]["metadata"]["ownerReferences"][0]["kind"] == "DataVolume"
        it.change(CLAIM, status={"phase": "Bound"})
        it.look()
        assert it.status()["phase"] == "ImportScheduled"
        it.change(POD, status={"phase": "Running", "podIP": "192.0.2.1"})
        it.progress[0] = Progress(percent=50.0)
        assert it.look() == Result(2.0)
        assert (it.status()["phase"], it.status()["progress"]) == ("ImportInProgress", "50.00%")
        ended = {"exitCode": 0, "message": encode(ImportReport(reason="Completed")).decode()}
        it.change(
            POD,
            status={"phase": "Succeeded", "containerStatuses": [{"name": "importer", "state": {"terminated": ended}}]},
        )
        it.look()
        assert it.status()["phase"] == "Succeeded"
        assert POD not in kube.objects
        assert kube.objects[CLAIM]["metadata"]["annotations"]["cdi.kubevirt.io/storage.pod.phase"] == "Succeeded"
        # Events are written by a thread of their own, beside the work: the last one must be there before we count.
        eventually(lambda: "Completed" in it.told())
        before = len(kube.methods("PATCH", "POST", "DELETE"))
        it.look()
        assert kube.methods("PATCH", "POST", "DELETE")[before:] == []


@pytest.mark.parametrize("labels", [{}, {LABEL_IMPORTER: "true", "operator.cdi.kubevirt.io": ""}])
def test_where_cdi_is_nothing_is_touched(kube: FakeKube, labels: dict[str, str]) -> None:
    volume(kube, **labels)
    with world(kube) as it:
        assert it.look() == Result(60.0)
    assert not kube.methods("PATCH", "POST", "DELETE")


def test_a_pod_that_only_has_the_name_is_not_believed(kube: FakeKube) -> None:
    volume(kube, **{LABEL_IMPORTER: "true"})
    with world(kube) as it:
        it.look()
        it.change(CLAIM, status={"phase": "Bound"})
        ended = {"exitCode": 0, "message": encode(ImportReport(reason="Completed")).decode()}
        state = {"phase": "Succeeded", "containerStatuses": [{"name": "importer", "state": {"terminated": ended}}]}
        kube.put(POD, {"metadata": {"labels": {names.LABEL_APP: names.APP_IMPORTER}}, "status": state})
        it.look()
        assert it.status()["phase"] == "ImportScheduled"


def _claim(kube: FakeKube, **annotations: str) -> None:
    kube.put(DEFINITION, definition() | {"metadata": {"name": "x", "labels": {LABEL_IMPORTER: "true"}}})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Block"}
    meta = {"annotations": {"cdi.kubevirt.io/storage.upload.target": "", **annotations}}
    kube.put(CLAIM, {"metadata": meta, "spec": spec, "status": {"phase": "Bound"}})


def test_a_claim_that_was_there_first_gets_a_data_volume_that_goes_with_it(kube: FakeKube) -> None:
    """As `virtctl image-upload pvc` makes it; the claim does not become the DataVolume's."""
    _claim(kube, **{"cdi.kubevirt.io/storage.bind.immediate.requested": ""})
    with world(kube) as it:
        it.look()
        made = kube.objects[VOLUME]
        assert made["spec"]["source"] == {"upload": {}}
        assert made["spec"]["pvc"]["volumeMode"] == "Block"
        assert made["metadata"]["ownerReferences"][0]["uid"] == kube.objects[CLAIM]["metadata"]["uid"]
        assert "cdi.kubevirt.io/storage.bind.immediate.requested" in made["metadata"]["annotations"]
        it.look()
        assert it.status()["phase"] == "UploadScheduled"
        assert POD in kube.objects
        assert not kube.objects[CLAIM]["metadata"].get("ownerReferences")


@pytest.mark.parametrize(
    "annotations",
    [{"cdi.kubevirt.io/storage.pod.phase": "Succeeded"}, {"cdi.kubevirt.io/storage.contentType": "archive"}],
)
def test_a_claim_that_is_filled_or_is_for_an_archive_gets_none(kube: FakeKube, annotations: dict[str, str]) -> None:
    _claim(kube, **annotations)
    with world(kube) as it:
        it.look()
        if "archive" in annotations.values():
            eventually(lambda: "ProvisioningFailed" in it.told())
    assert VOLUME not in kube.objects


def test_a_data_volume_that_only_says_so_does_not_get_a_claim_that_asks_for_nothing(kube: FakeKube) -> None:
    """Whoever may make DataVolumes could else have any claim of the namespace written over."""
    _claim(kube)
    kube.put(CLAIM, {**kube.objects[CLAIM], "metadata": {**kube.objects[CLAIM]["metadata"], "annotations": {}}})
    owner = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "disk"}
    owner["uid"] = kube.objects[CLAIM]["metadata"]["uid"]
    spec = {"source": {"upload": {}}, "pvc": {"accessModes": ["ReadWriteOnce"]}}
    kube.put(VOLUME, {"metadata": {"ownerReferences": [owner]}, "spec": spec})
    with world(kube) as it:
        it.look()
        assert "not this DataVolume's" in it.status()["conditions"][0]["message"]
    assert POD not in kube.objects


def test_a_claim_that_a_machine_uses_is_not_written_to(kube: FakeKube) -> None:
    _claim(kube)
    volume = {"name": "d", "persistentVolumeClaim": {"claimName": "disk"}}
    kube.put(
        "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/user",
        {"spec": {"domain": {"devices": {}}, "volumes": [volume]}, "status": {"phase": "Running"}},
    )
    with world(kube) as it:
        it.look()
        it.look()
        assert any("used by VMI user" in each.get("message", "") for each in it.status()["conditions"])
    assert POD not in kube.objects
