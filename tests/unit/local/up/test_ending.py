"""`down` waits as long as the most patient guest or Pod may take, and lets nothing new begin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube

from virt_core.kube.errors import ApiError
from virt_local.up import ending
from virt_local.up.ending import Workload, allowed_s, close_nodes, end_workloads, open_nodes, titles, workload
from virt_local.up.progress import Progress

NODES = "/api/v1/nodes"
VMI = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances/guest"


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as made:
        yield made


def item(name: str = "x", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "spec": spec}


def test_each_has_the_grace_period_of_its_manifest() -> None:
    assert workload("VMI", item(terminationGracePeriodSeconds=180)).grace_s == 180
    assert workload("Pod", item(terminationGracePeriodSeconds=0)).grace_s == 0
    assert workload("VMI", item()).grace_s == 30, "Kubernetes' default"
    leaving = item(terminationGracePeriodSeconds=3600)
    leaving["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}
    assert workload("Pod", leaving).grace_s == 5, "whoever deleted it has said how long it may take"
    assert workload("Pod", leaving).going


def test_a_vmi_takes_its_pod_with_it() -> None:
    owned = item()
    owned["metadata"]["ownerReferences"] = [{"kind": "VirtualMachineInstance", "name": "guest"}]
    assert workload("Pod", owned).going
    assert not workload("Pod", item()).going


def some(*graces: float) -> list[Workload]:
    return [Workload(f"/{i}", f"u{i}", f"VMI default/g{i}", False, grace) for i, grace in enumerate(graces)]


def test_the_wait_follows_from_the_longest_and_can_be_cut_short() -> None:
    assert 600 < allowed_s(some(30, 600, 0), None) < 700
    assert allowed_s(some(30, 600), 10) == 10
    assert allowed_s(some(0), 10_000) < 100, "nobody needs more than they may take"


def test_what_is_waited_for_is_named() -> None:
    assert titles(some(1, 1)) == "VMI default/g0, VMI default/g1"
    assert titles(some(*range(5))) == "VMI default/g0, VMI default/g1, VMI default/g2 and 2 more"


def test_a_machine_that_comes_back_is_left_for_the_next_up(kube: FakeKube) -> None:
    """A VM that shall always run makes a new VMI at once. It is another one, and no node takes it."""
    kube.put(f"{NODES}/node1", {})
    kube.put(VMI, {"metadata": {"name": "guest", "namespace": "default", "uid": "first"}})
    deleted: list[bool] = []

    def come_back(method: str, path: str, *_: Any) -> Any:
        if method == "DELETE" and path.startswith(VMI):
            deleted.append(bool(kube.objects[f"{NODES}/node1"]["spec"].get("unschedulable")))
            kube.remove(VMI)
            kube.put(VMI, {"metadata": {"name": "guest", "namespace": "default", "uid": "second"}})
            return 200, {}, {}
        return None

    kube.on_request = come_back
    lines: list[str] = []
    end_workloads(kube.client(), Progress(lines.append), None)
    assert deleted == [True], "deleted once, and nothing could start any more"
    assert "ending VMI default/guest: waiting up to 60 s" in lines[0]


def test_what_does_not_end_in_time_is_named_and_left_to_be_killed(kube: FakeKube) -> None:
    kube.put(VMI, {"metadata": {"name": "guest", "namespace": "default", "uid": "first"}})
    kube.on_request = lambda method, *_: (200, {}, {}) if method == "DELETE" else None
    lines: list[str] = []
    end_workloads(kube.client(), Progress(lines.append), 0)
    assert "killing what did not end within 0 s: VMI default/guest" in lines[-1]


def test_with_nothing_to_end_nothing_is_said_or_closed(kube: FakeKube) -> None:
    kube.put(f"{NODES}/node1", {})
    lines: list[str] = []
    end_workloads(kube.client(), Progress(lines.append), None)
    assert lines == []
    assert not kube.objects[f"{NODES}/node1"].get("spec", {}).get("unschedulable")


def test_only_what_down_has_closed_is_opened_again(kube: FakeKube) -> None:
    kube.put(f"{NODES}/ours", {})
    kube.put(f"{NODES}/closed", {"spec": {"unschedulable": True}})
    client = kube.client()
    close_nodes(client)
    assert kube.objects[f"{NODES}/ours"]["spec"]["unschedulable"]
    open_nodes(client)
    assert not kube.objects[f"{NODES}/ours"]["spec"].get("unschedulable")
    assert kube.objects[f"{NODES}/closed"]["spec"]["unschedulable"], "a person did that"


def test_who_interrupts_goes_on_working(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    kube.put(f"{NODES}/node1", {})
    kube.put(VMI, {"metadata": {"name": "guest", "namespace": "default", "uid": "first"}})

    def interrupt(_s: float) -> None:
        raise KeyboardInterrupt

    kube.on_request = lambda method, *_: (200, {}, {}) if method == "DELETE" else None
    monkeypatch.setattr(ending.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        end_workloads(kube.client(), Progress(lambda _: None), None)
    assert not kube.objects[f"{NODES}/node1"]["spec"].get("unschedulable")


def test_an_api_that_goes_away_is_told(kube: FakeKube) -> None:
    kube.on_request = lambda *_: (403, {"kind": "Status", "code": 403, "message": "no"}, {})
    with pytest.raises(ApiError):
        end_workloads(kube.client(), Progress(lambda _: None), None)
