"""Before Virtpod goes: machines that are left are counted and named, and only then anything is refused."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from framework.fake_kube import fake_kube

from virt_controller import uninstall
from virt_controller.main import main
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.connect import ConnectError

LEFT = "Delete them first, or leave them behind with `helm uninstall --no-hooks`"


def test_nothing_left_refuses_nothing() -> None:
    assert uninstall.refuse([], []) == ""


@pytest.mark.parametrize(
    ("vms", "vmis", "told"),
    [
        (["a"], [], "there is still 1 VM (in namespace a)."),
        ([], ["b", "b"], "there are still 2 VMIs (in namespace b)."),
        (["a", "b", "b"], ["b"], "there are still 3 VMs and 1 VMI (in namespaces b, a)."),
        (list("abcdefg"), [], "there are still 7 VMs (in namespaces a, b, c, d, e and 2 more)."),
    ],
)
def test_what_is_left_is_counted_and_placed(vms: list[str], vmis: list[str], told: str) -> None:
    said = uninstall.refuse(vms, vmis)
    assert said.startswith(f"Virtpod is not removed: {told} {LEFT}")


def run(monkeypatch: pytest.MonkeyPatch, client: object) -> tuple[int, str]:
    monkeypatch.setattr(uninstall, "load_connection", lambda _: None)
    monkeypatch.setattr(uninstall, "KubeClient", lambda *_: client)
    result = CliRunner().invoke(main, ["--check-uninstall"])
    return result.exit_code, result.output


def test_the_program_asks_the_cluster_and_needs_no_other_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_kube() as fake:
        client = fake.client()
        assert run(monkeypatch, client) == (0, "there are no VMs and no VMIs\n")
        for cls in (VirtualMachine, VirtualMachineInstance):
            client.create(cls(metadata=ObjectMeta(name="left", namespace="a")))
        code, said = run(monkeypatch, client)
    assert code == 1
    assert "still 1 VM and 1 VMI (in namespace a)" in said


def test_who_can_not_look_does_not_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise ConnectError("no kubeconfig found")

    monkeypatch.setattr(uninstall, "load_connection", refuse)
    result = CliRunner().invoke(main, ["--check-uninstall"])
    assert result.exit_code == 1
    assert "still VMs or VMIs: no kubeconfig found" in result.output
