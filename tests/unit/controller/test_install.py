"""The default KubeVirt object: made, made again, changed with its file, and otherwise its owner's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.waiting import eventually, running

from virt_controller.install import MARK, DefaultKubeVirt
from virt_core.apis.kubevirt import KubeVirt
from virt_core.kube.informer import Informer
from virt_core.runtime.clock import FakeClock

PATH = "/apis/kubevirt.io/v1/namespaces/virtpod/kubevirts/kubevirt"
YAML = """
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata:
  name: kubevirt
  labels: {a: b}
spec:
  configuration:
    developerConfiguration: {useEmulation: true}
"""


class Rig:
    def __init__(self, kube: FakeKube, file: Path) -> None:
        self.kube, self.file, self.clock = kube, file, FakeClock()
        client = kube.client()
        self.informer = Informer(client, KubeVirt, "virtpod")
        self.default = DefaultKubeVirt(client, "virtpod", str(file), kubevirts=self.informer, clock=self.clock)

    def patches(self) -> list[dict[str, str]]:
        return [query for method, _, query, _ in self.kube.requests if method == "PATCH"]

    def write(self, text: str) -> None:
        """As kubelet does: at once."""
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.file)

    def look(self) -> None:
        """Some time later: the file is looked at again."""
        eventually(lambda: self.clock.waiters() > 0)
        self.clock.step(11)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    file = tmp_path / "kubevirt.yaml"
    file.write_text(YAML)
    with fake_kube() as kube:
        rig = Rig(kube, file)
        with running(rig.informer.run, rig.default.run):
            yield rig
            rig.clock.step(60)


def test_it_is_applied_as_the_charts_own(rig: Rig) -> None:
    eventually(lambda: PATH in rig.kube.objects)
    obj = rig.kube.objects[PATH]
    assert obj["spec"] == {"configuration": {"developerConfiguration": {"useEmulation": True}}}
    assert (obj["metadata"]["namespace"], obj["metadata"]["labels"]) == ("virtpod", {"a": "b"})
    assert rig.patches() == [{"fieldManager": "virtpod-chart", "force": "true"}]


def test_a_deleted_one_comes_back(rig: Rig) -> None:
    eventually(lambda: rig.informer.get("virtpod/kubevirt"))
    rig.kube.remove(PATH)
    eventually(lambda: PATH in rig.kube.objects)


def test_what_others_write_is_left_alone(rig: Rig) -> None:
    eventually(lambda: rig.informer.get("virtpod/kubevirt"))
    obj = rig.kube.objects[PATH]
    rig.kube.put(PATH, {**obj, "spec": {"configuration": {"evictionStrategy": "LiveMigrate"}}})
    rig.look()
    rig.look()
    assert len(rig.patches()) == 1


def test_a_changed_file_is_applied(rig: Rig) -> None:
    eventually(lambda: rig.informer.get("virtpod/kubevirt"))
    before = rig.kube.objects[PATH]["metadata"]["annotations"][MARK]
    rig.write(YAML.replace("true", "false"))
    rig.look()
    eventually(lambda: rig.kube.objects[PATH]["metadata"]["annotations"][MARK] != before)
    assert rig.kube.objects[PATH]["spec"]["configuration"]["developerConfiguration"] == {"useEmulation": False}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not YAML"),
        ("[]", "does not hold an object"),
        ("kind: Pod", "must hold the KubeVirt object"),
        (YAML.replace("name: kubevirt", "name: other"), "must hold the KubeVirt object"),
        (YAML.replace("{useEmulation: true}", "[]"), "does not hold a valid KubeVirt object"),
        (None, "No such file"),
    ],
)
def test_a_bad_file_is_said_once_and_read_again_when_it_changes(
    rig: Rig, text: str | None, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    eventually(lambda: rig.informer.get("virtpod/kubevirt"))
    rig.file.unlink() if text is None else rig.write(text)
    log = ""

    def told() -> bool:
        nonlocal log
        log += capsys.readouterr().err
        return "cannot be read" in log

    rig.look()
    eventually(told)
    rig.look()
    rig.look()
    rig.write(YAML.replace("true", "false"))
    rig.look()
    eventually(lambda: len(rig.patches()) == 2)
    told()
    assert why in log
    assert log.count("cannot be read") == 1
