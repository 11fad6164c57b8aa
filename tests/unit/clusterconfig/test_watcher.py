"""The configuration while it changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_core.kube.clusterconfig import ClusterConfig, ConfigWatcher, follow_log_level
from virt_core.runtime import logs

COLLECTION = "/apis/kubevirt.io/v1/namespaces/virtpod/kubevirts"


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as server:
        yield server


def write(kube: FakeKube, name: str = "kubevirt", created: str = "2026-01-01T00:00:00Z", **configuration: Any) -> None:
    kube.put(
        f"{COLLECTION}/{name}",
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "KubeVirt",
            "metadata": {"name": name, "namespace": "virtpod", "creationTimestamp": created},
            "spec": {"configuration": configuration},
        },
    )


def test_without_an_object_the_defaults_hold_and_emulation_is_allowed(kube: FakeKube) -> None:
    watcher = ConfigWatcher(kube.client(), "virtpod")
    assert watcher.current() == ClusterConfig(use_emulation=True)
    with running(watcher.run):
        eventually(watcher.has_synced)
        assert watcher.state().source is None


def test_a_change_arrives_without_a_restart(kube: FakeKube) -> None:
    watcher = ConfigWatcher(kube.client(), "virtpod")
    seen: list[str] = []
    watcher.on_change(lambda config: seen.append(config.cpu_model))
    write(kube, cpuModel="Nehalem")
    with running(watcher.run):
        eventually(lambda: watcher.current().cpu_model == "Nehalem")
        assert not watcher.current().use_emulation
        write(kube, cpuModel="Penryn")
        eventually(lambda: watcher.current().cpu_model == "Penryn")
        kube.remove(f"{COLLECTION}/kubevirt")
        eventually(lambda: watcher.current().use_emulation)
    assert seen == ["host-model", "Nehalem", "Penryn", "host-model"]


def test_the_health_page_tells_the_version_of_what_holds(kube: FakeKube) -> None:
    watcher = ConfigWatcher(kube.client(), "virtpod")

    def told() -> str:
        return str(json.loads(watcher.health())["config-resource-version"])

    def stored() -> str:
        return str(kube.objects[f"{COLLECTION}/kubevirt"]["metadata"]["resourceVersion"])

    assert told() == "0"
    write(kube, cpuModel="Nehalem")
    with running(watcher.run):
        eventually(lambda: told() == stored())
        good = told()
        write(kube, cpuModel="Penryn", imagePullPolicy="Sometimes")
        eventually(lambda: watcher.state().problem)
        assert told() == good != stored()


def test_a_bad_configuration_leaves_the_last_good_one(kube: FakeKube) -> None:
    write(kube, cpuModel="Nehalem")
    watcher = ConfigWatcher(kube.client(), "virtpod")
    with running(watcher.run):
        eventually(lambda: watcher.current().cpu_model == "Nehalem")
        write(kube, cpuModel="Penryn", imagePullPolicy="Sometimes")
        eventually(lambda: "imagePullPolicy" in watcher.state().problem)
        assert watcher.current().cpu_model == "Nehalem"
        write(kube, cpuModel="Penryn", imagePullPolicy="Always")
        eventually(lambda: watcher.current().cpu_model == "Penryn")
        assert watcher.state().problem == ""


def test_a_change_that_changes_nothing_is_not_told(kube: FakeKube) -> None:
    write(kube)
    watcher = ConfigWatcher(kube.client(), "virtpod")
    seen: list[ClusterConfig] = []
    with running(watcher.run):
        eventually(watcher.has_synced)
        watcher.on_change(seen.append)
        write(kube)
        write(kube, cpuModel="Nehalem")
        eventually(lambda: len(seen) >= 2)
    assert len(seen) == 2


def test_of_several_the_oldest_holds(kube: FakeKube) -> None:
    write(kube, "young", "2026-02-01T00:00:00Z", cpuModel="Penryn")
    write(kube, "old", "2026-01-01T00:00:00Z", cpuModel="Nehalem")
    watcher = ConfigWatcher(kube.client(), "virtpod")
    with running(watcher.run):
        eventually(lambda: watcher.current().cpu_model == "Nehalem")
        eventually(lambda: len(watcher.informer.list()) == 2)
        assert watcher.current().cpu_model == "Nehalem"


def test_a_listener_that_fails_does_not_stop_the_others(kube: FakeKube) -> None:
    watcher = ConfigWatcher(kube.client(), "virtpod")
    seen: list[ClusterConfig] = []

    def bad(config: ClusterConfig) -> None:
        raise RuntimeError("no")

    watcher.on_change(bad)
    watcher.on_change(seen.append)
    write(kube, cpuModel="Nehalem")
    with running(watcher.run):
        eventually(lambda: len(seen) == 2)


def test_the_log_level_follows(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    levels: list[str] = []
    monkeypatch.setattr("virt_core.kube.clusterconfig.set_level", levels.append)
    watcher = ConfigWatcher(kube.client(), "virtpod")
    follow_log_level(watcher, "virtAPI", "info")
    write(kube, developerConfiguration={"logVerbosity": {"virtAPI": 7}})
    with running(watcher.run):
        eventually(lambda: levels[-1:] == ["debug"])
        write(kube)
        eventually(lambda: levels[-1:] == ["info"])


def test_set_level_changes_what_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    log = logs.get_logger("test")
    before = logs._Route.threshold
    try:
        logs.set_level("warning")
        log.info("hidden")
        logs.set_level("debug")
        log.debug("shown")
    finally:
        logs._Route.threshold = before
    written = capsys.readouterr().err
    assert "shown" in written
    assert "hidden" not in written
