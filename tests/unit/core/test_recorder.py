"""Events: written beside the work, counted up instead of repeated, dropped instead of blocking."""

from __future__ import annotations

import threading

import pytest
from framework.fake_kube import FakeKube, failure
from framework.waiting import eventually, running

from virt_core.apis.meta import ObjectMeta
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.kube.recorder import DROPPED, EventRecorder

POD = Pod(metadata=ObjectMeta(name="a", namespace="default", uid="u1"))


@pytest.fixture
def recorder(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> EventRecorder:
    """Writes when told to (flush), not by a thread of its own."""
    monkeypatch.setattr(EventRecorder, "_ensure_thread", lambda _self: None)
    return EventRecorder(kube.client(), "virt-test", "node1")


def test_event_names_the_object_and_the_source(kube: FakeKube, recorder: EventRecorder) -> None:
    recorder.event(POD, "Normal", "Created", "made it")
    recorder.flush()
    (event,) = kube.objects.values()
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "a",
        "uid": "u1",
    }
    assert (event["type"], event["reason"], event["message"], event["count"]) == ("Normal", "Created", "made it", 1)
    assert event["source"] == {"component": "virt-test", "host": "node1"}
    assert event["metadata"]["namespace"] == "default"


def test_repeats_raise_the_count(kube: FakeKube, recorder: EventRecorder) -> None:
    for _ in range(3):
        recorder.event(POD, "Warning", "Failed", "again")
    recorder.event(POD, "Warning", "Failed", "other words")
    recorder.flush()
    assert sorted(e["count"] for e in kube.objects.values()) == [1, 3]


def test_an_expired_event_is_made_anew(kube: FakeKube, recorder: EventRecorder) -> None:
    recorder.event(POD, "Normal", "R", "m")
    recorder.flush()
    kube.objects.clear()
    recorder.event(POD, "Normal", "R", "m")
    recorder.flush()
    assert [e["count"] for e in kube.objects.values()] == [1]


def test_cluster_wide_objects_have_their_events_in_default(kube: FakeKube, recorder: EventRecorder) -> None:
    recorder.event(Node(metadata=ObjectMeta(name="n1")), "Normal", "R", "m")
    recorder.flush()
    assert next(iter(kube.objects)).startswith("/api/v1/namespaces/default/events/n1.")


def test_a_full_queue_drops_and_counts(kube: FakeKube, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventRecorder, "_ensure_thread", lambda _self: None)
    recorder = EventRecorder(kube.client(), "c", queue_size=2)
    before = DROPPED.value()
    for number in range(5):
        recorder.event(POD, "Normal", "R", str(number))
    assert DROPPED.value() - before == 3
    recorder.flush()
    assert len(kube.objects) == 2


def test_an_api_that_refuses_costs_only_that_event(kube: FakeKube, recorder: EventRecorder) -> None:
    kube.on_request = lambda *_: failure(403, "Forbidden", "no")
    recorder.event(POD, "Normal", "R", "m")
    recorder.flush()
    kube.on_request = None
    recorder.event(POD, "Normal", "R", "m")
    recorder.flush()
    assert len(kube.objects) == 1


def test_the_thread_writes_and_flushes_at_the_stop(kube: FakeKube) -> None:
    recorder = EventRecorder(kube.client(), "c")
    with running(recorder.run):
        recorder.event(POD, "Normal", "R", "1")
        eventually(lambda: len(kube.objects) == 1)
        release = threading.Event()
        kube.on_request = lambda *_: release.wait(5) and None
        recorder.event(POD, "Normal", "R", "2")
        recorder.event(POD, "Normal", "R", "3")
        release.set()
    assert len(kube.objects) == 3
