"""The status of the KubeVirt object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_controller.kubevirt import KubeVirtController
from virt_core import __version__
from virt_core.apis.kubevirt import KubeVirt
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.clusterconfig import ConfigWatcher, host_architecture
from virt_core.kube.controller import Controller
from virt_core.kube.informer import Informer
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import SystemClock

COLLECTION = "/apis/kubevirt.io/v1/namespaces/virtpod/kubevirts"


class Events:
    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def event(self, obj: Any, type: str, reason: str, message: str) -> None:
        self.told.append((type, reason, message))


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as server:
        yield server


def write(kube: FakeKube, name: str = "kubevirt", created: str = "2026-01-01T00:00:00Z", **configuration: Any) -> None:
    found = kube.objects.get(f"{COLLECTION}/{name}") or {"status": {}}
    metadata = {
        "name": name,
        "namespace": "virtpod",
        "creationTimestamp": created,
        "generation": 1,
        "uid": f"uid-{name}",
    }
    obj = {"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": metadata, "status": found["status"]}
    kube.put(f"{COLLECTION}/{name}", obj | {"spec": {"configuration": configuration}})


def status(kube: FakeKube, name: str = "kubevirt") -> Any:
    return kube.client().get(KubeVirt, name, "virtpod").status


def degraded(kube: FakeKube, name: str = "kubevirt") -> Any:
    return next((c for c in status(kube, name).conditions if c.type == "Degraded"), None)


@pytest.fixture
def events(kube: FakeKube) -> Iterator[Events]:
    client, clock, told = kube.client(), SystemClock(), Events()
    watcher, queue = ConfigWatcher(client, "virtpod"), WorkQueue(clock, "kubevirt")
    anything: Any = told
    vmis = Informer(client, VirtualMachineInstance)
    reconciler = KubeVirtController(
        client,
        queue=queue,
        kubevirts=watcher.informer,
        state=watcher.state,
        vmis=vmis,
        image="launcher:2",
        recorder=anything,
        clock=clock,
    )
    controller = Controller("kubevirt", queue, reconciler.reconcile, 1, [watcher, vmis])
    with running(watcher.run, vmis.run, controller.run):
        yield told


def test_a_good_object_is_deployed(kube: FakeKube, events: Events) -> None:
    write(kube)
    eventually(lambda: status(kube).phase == "Deployed")
    found = status(kube)
    assert found.observed_kube_virt_version == found.target_kube_virt_version == __version__
    assert found.observed_generation == 1
    assert found.default_architecture == host_architecture()
    conditions = {condition.type: condition.status for condition in found.conditions}
    assert conditions == {"Created": "True", "Available": "True", "Progressing": "False", "Degraded": "False"}
    assert events.told == []


def test_machines_with_an_old_launcher_are_counted(kube: FakeKube, events: Events) -> None:
    machines = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
    old = {"phase": "Running", "launcherContainerImageVersion": "launcher:1"}
    kube.put(f"{machines}/old", {"metadata": {"name": "old", "namespace": "default"}, "spec": {}, "status": old})
    new = old | {"launcherContainerImageVersion": "launcher:2"}
    kube.put(f"{machines}/new", {"metadata": {"name": "new", "namespace": "default"}, "spec": {}, "status": new})
    write(kube)
    eventually(lambda: status(kube).outdated_virtual_machine_instance_workloads == 1)
    kube.put(f"{machines}/old", {"metadata": {"name": "old", "namespace": "default"}, "spec": {}, "status": new})
    eventually(lambda: status(kube).outdated_virtual_machine_instance_workloads == 0)
    assert events.told == []


def test_the_default_architecture_is_that_of_the_configuration(kube: FakeKube, events: Events) -> None:
    write(kube, architectureConfiguration={"defaultArchitecture": "arm64"})
    eventually(lambda: status(kube).default_architecture == "arm64")


def test_a_bad_configuration_is_told_once_and_forgotten_when_it_is_good_again(kube: FakeKube, events: Events) -> None:
    write(kube, imagePullPolicy="Sometimes")
    eventually(lambda: degraded(kube) is not None and degraded(kube).status == "True")
    assert "imagePullPolicy" in degraded(kube).message
    assert degraded(kube).reason == "InvalidConfiguration"
    write(kube, imagePullPolicy="Always")
    eventually(lambda: degraded(kube).status == "False")
    assert [(kind, reason) for kind, reason, _ in events.told] == [("Warning", "InvalidConfiguration")]


def test_a_second_object_is_told_that_it_does_not_count(kube: FakeKube, events: Events) -> None:
    write(kube)
    eventually(lambda: status(kube).phase == "Deployed")
    write(kube, "second", "2026-02-01T00:00:00Z")
    eventually(lambda: degraded(kube, "second") is not None)
    assert degraded(kube, "second").reason == "AnotherKubeVirtIsInForce"
    assert degraded(kube).status == "False"


def test_nothing_is_written_twice(kube: FakeKube, events: Events) -> None:
    write(kube)
    eventually(lambda: status(kube).phase == "Deployed")
    eventually(lambda: len(kube.methods("PATCH")) >= 1)
    write(kube, cpuModel="Nehalem")
    eventually(lambda: status(kube).phase == "Deployed")
    assert len(kube.methods("PATCH")) == 1
