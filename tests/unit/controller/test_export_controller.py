"""The controller of exports against an API: Service, token, Pod, certificate, links; and what breaks off in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_controller.export.controller import NAMESPACE_INDEX, ExportController, namespace_indexer
from virt_controller.export.model import KEY_CERTIFICATE
from virt_controller.launcher_pod import TemplateConfig
from virt_controller.vmi.keptstate import STATE_INDEX, state_indexer
from virt_controller.vmi.surroundings import VOLUME_INDEX, vmi_volumes
from virt_core.apis import names
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.export import VirtualMachineExport
from virt_core.apis.pods import Pod
from virt_core.apis.services import Service
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import FakeClock
from virt_core.runtime.times import rfc3339

EXPORT = "/apis/export.kubevirt.io/v1/namespaces/default/virtualmachineexports/out"
POD = "/api/v1/namespaces/default/pods/virt-export-out"
SERVICE = "/api/v1/namespaces/default/services/virt-export-out"
SECRETS = "/api/v1/namespaces/default/secrets/"
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/disk"


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as fake:
        yield fake


@dataclass
class It:
    controller: ExportController
    kube: FakeKube
    clock: FakeClock
    shown: list[tuple[Informer[Any], str, str]]

    def look(self) -> None:
        """After the live copies show what the API has."""
        eventually(lambda: all(self._shown(*each) for each in self.shown))
        self.controller.reconcile("default/out")

    def _shown(self, informer: Informer[Any], key: str, path: str) -> bool:
        found, wanted = informer.get(key), self.kube.objects.get(path)
        if found is None or wanted is None:
            return found is wanted
        return bool(found.metadata.resource_version == wanted["metadata"]["resourceVersion"])

    def status(self) -> Any:
        return self.kube.objects[EXPORT].get("status", {})

    def secrets(self) -> list[str]:
        return sorted(path.removeprefix(SECRETS) for path in self.kube.objects if path.startswith(SECRETS))


@contextmanager
def world(kube: FakeKube) -> Iterator[It]:
    client, clock = kube.client(), FakeClock()
    label = f"{names.LABEL_APP}={names.APP_EXPORTER}"
    exports = Informer(client, VirtualMachineExport, indexers={NAMESPACE_INDEX: namespace_indexer})
    pods, services = Informer(client, Pod, label_selector=label), Informer(client, Service, label_selector=label)
    claims = Informer(client, PersistentVolumeClaim, indexers={STATE_INDEX: state_indexer})
    volumes, vms = Informer(client, DataVolume), Informer(client, VirtualMachine)
    vmis = Informer(client, VirtualMachineInstance, indexers={VOLUME_INDEX: vmi_volumes})
    controller = ExportController(
        client, queue=WorkQueue(clock), exports=exports, pods=pods, services=services, claims=claims,
        data_volumes=volumes, vms=vms, vmis=vmis, recorder=EventRecorder(client, "virt-controller"), clock=clock,
        template=TemplateConfig("image"), expand=lambda vm: vm,
    )  # fmt: skip
    informers: list[Informer[Any]] = [exports, pods, services, claims, volumes, vms, vmis]
    kube.put(
        EXPORT,
        {
            "metadata": {"creationTimestamp": rfc3339(clock.now())},
            "spec": {"source": {"kind": "PersistentVolumeClaim", "name": "disk"}, "ttlDuration": "1h"},
        },
    )
    kube.put(CLAIM, {"metadata": {}, "spec": {}, "status": {"phase": "Bound"}})
    with running(*(each.run for each in informers)):
        eventually(lambda: all(each.has_synced() for each in informers))
        yield It(controller, kube, clock, [
            (exports, "default/out", EXPORT), (pods, "default/virt-export-out", POD),
            (services, "default/virt-export-out", SERVICE), (claims, "default/disk", CLAIM),
        ])  # fmt: skip


def test_an_export_becomes_ready_and_writes_nothing_more(kube: FakeKube) -> None:
    with world(kube) as it:
        it.look()
        assert SERVICE in kube.objects
        assert it.secrets() == ["export-token-out"]
        it.look()
        pod = kube.objects[POD]
        assert len(it.secrets()) == 2
        assert "BEGIN CERTIFICATE" in pod["metadata"]["annotations"][KEY_CERTIFICATE]
        kube.put(POD, {**pod, "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
        it.look()
        assert it.status()["phase"] == "Ready"
        assert it.status()["links"]["internal"]["cert"] == pod["metadata"]["annotations"][KEY_CERTIFICATE]
        before = len(kube.methods("PATCH", "POST", "DELETE"))
        it.look()
        assert kube.methods("PATCH", "POST", "DELETE")[before:] == []


def test_a_service_that_was_deleted_comes_back(kube: FakeKube) -> None:
    with world(kube) as it:
        it.look()
        kube.remove(SERVICE)
        it.look()
        assert SERVICE in kube.objects


def test_a_certificate_that_broke_off_is_made_anew_with_its_pod(kube: FakeKube) -> None:
    """The Secret is there, and the Pod does not say which certificate is in it: nobody knows it any more."""
    with world(kube) as it:
        it.look()
        secret = kube.objects[POD]["spec"]["volumes"][0]["secret"]["secretName"]
        kube.put(SECRETS + secret, {"metadata": {}, "data": {}})
        it.look()
        assert POD not in kube.objects
        it.look()
        assert kube.objects[POD]["spec"]["volumes"][0]["secret"]["secretName"] != secret


def test_its_time_ends_it(kube: FakeKube) -> None:
    with world(kube) as it:
        it.look()
        it.clock.step(3600.0)
        it.look()
        assert EXPORT not in kube.objects


def test_a_pod_of_somebody_else_is_left_alone(kube: FakeKube) -> None:
    with world(kube) as it:
        foreign = {"labels": {names.LABEL_APP: names.APP_EXPORTER}}
        kube.put(POD, {"metadata": foreign, "spec": {"containers": []}, "status": {"phase": "Running"}})
        it.look()
        assert kube.objects[POD]["spec"] == {"containers": []}
        assert it.status()["conditions"][0]["reason"] == "NameTaken"
        assert kube.methods("DELETE") == []
