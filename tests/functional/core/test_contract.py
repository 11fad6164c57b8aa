"""The client, the informer, leader election and events, each on the fake API server and on virt-local's real one.

What holds on one must hold on the other; otherwise the unit tests prove something about the fake only.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.fake_kube import FakeKube
from framework.waiting import eventually, running
from functional.core.servers import Server, VirtLocal

from virt_core.apis.config import ConfigMap
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.nodes import Event, Namespace
from virt_core.kube import errors
from virt_core.kube.informer import Informer
from virt_core.kube.leader import LeaderElector
from virt_core.kube.patch import JsonPatch, MergePatch, op
from virt_core.kube.recorder import EventRecorder


@pytest.fixture(params=["fake", "virt-local"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    server: Server = FakeKube() if request.param == "fake" else VirtLocal(tmp_path)
    client = server.client()
    for name in ("default", "virtpod"):
        try:
            client.create(Namespace(metadata=ObjectMeta(name=name)))
        except errors.AlreadyExists:
            continue
    yield server
    client.close()
    server.down()


def config(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default", labels={"test": "yes"}), data=data)


def test_a_life_of_an_object(server: Server) -> None:
    client = server.client()
    made = client.create(config("a", x="1"))
    assert made.metadata.uid
    assert made.metadata.resource_version
    with pytest.raises(errors.AlreadyExists):
        client.create(config("a"))
    changed = client.patch(ConfigMap, "a", "default", MergePatch({"data": {"x": None, "y": "2"}}))
    assert changed.data == {"y": "2"}
    fresh = op.test("/metadata/resourceVersion", changed.metadata.resource_version)
    assert client.patch(ConfigMap, "a", "default", JsonPatch([fresh, op.add("/data/z", "3")])).data == {
        "y": "2",
        "z": "3",
    }
    with pytest.raises(errors.ApiError) as stale:
        client.patch(ConfigMap, "a", "default", JsonPatch([fresh, op.remove("/data/z")]))
    assert stale.value.status in (409, 422)
    with pytest.raises(errors.Conflict):
        client.replace(made)
    with pytest.raises(errors.Conflict):
        client.delete(ConfigMap, "a", "default", uid="another")
    client.delete(ConfigMap, "a", "default", uid=made.metadata.uid)
    with pytest.raises(errors.NotFound):
        client.get(ConfigMap, "a", "default")


def test_list_by_pages_and_labels(server: Server) -> None:
    client = server.client()
    for number in range(7):
        client.create(config(f"c{number}"))
    listed = client.list(ConfigMap, "default", label_selector="test=yes", limit=3)
    assert sorted(o.metadata.name for o in listed.items) == [f"c{n}" for n in range(7)]
    assert len(client.list(ConfigMap, label_selector="test=yes").items) == 7
    assert not client.list(ConfigMap, "default", label_selector="test=no").items


def test_informer_sees_everything_over_an_outage(server: Server) -> None:
    """Before, during (by another's hand, right after the restart) and after a killed server."""
    client = server.client()
    client.create(config("kept"))
    client.create(config("gone"))
    informer: Informer[ConfigMap] = Informer(server.client(), ConfigMap, label_selector="test=yes")
    calls: list[tuple[str, str]] = []
    informer.add_handler(
        lambda obj: calls.append(("add", obj.metadata.name)),
        lambda _old, new: calls.append(("update", new.metadata.name)),
        lambda obj: calls.append(("delete", obj.metadata.name)),
    )
    with running(informer.run):
        eventually(lambda: len(informer.list()) == 2)
        client.patch(ConfigMap, "kept", "default", MergePatch({"data": {"a": "1"}}))
        eventually(lambda: ("update", "kept") in calls)
        server.down()
        server.up()
        client.delete(ConfigMap, "gone", "default")
        client.create(config("new"))
        eventually(lambda: {("delete", "gone"), ("add", "new")} <= set(calls), within_s=20)
        assert sorted(o.metadata.name for o in informer.list()) == ["kept", "new"]
    assert len(calls) == len(set(calls)), "something was told twice"


def test_leader_election(server: Server) -> None:
    def elector(name: str) -> LeaderElector:
        work = lambda stop: stop.wait(30)  # noqa: E731
        times = {"lease_duration_s": 3.0, "renew_deadline_s": 2.0, "retry_period_s": 0.1}
        return LeaderElector(server.client(), "virtpod", "virt-controller", name, work, **times)

    first, second = elector("a"), elector("b")
    with running(first.run):
        eventually(first.is_leader)
        with running(second.run) as second_stop:
            eventually(lambda: second._seen)
            assert not second.is_leader()
            second_stop.set()
    with running(second.run):
        # The first gave the lease back, so nobody waits for it to run out.
        eventually(second.is_leader, within_s=2)


def test_events_can_be_found_by_their_object(server: Server) -> None:
    client = server.client()
    made = client.create(config("a"))
    recorder = EventRecorder(client, "test")
    with running(recorder.run):
        for _ in range(3):
            recorder.event(made, "Warning", "Odd", "three times")
    found = client.list(Event, "default", field_selector="involvedObject.name=a").items
    assert [(e.reason, e.count, e.involved_object.uid) for e in found] == [("Odd", 3, made.metadata.uid)]
