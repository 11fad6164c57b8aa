"""KubeClient against a fake API server over real HTTP."""

from __future__ import annotations

import threading

import pytest
from framework.fake_kube import FakeKube, failure
from framework.waiting import eventually

from virt_core.apis.config import ConfigMap
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.kube import errors
from virt_core.kube.patch import ApplyPatch, JsonPatch, MergePatch, op, pointer
from virt_core.runtime.clock import FakeClock

PODS = "/api/v1/namespaces/default/pods"


def make_pod(name: str) -> Pod:
    return Pod(metadata=ObjectMeta(name=name, namespace="default"))


def test_create_sends_kind_and_returns_what_the_server_stored(kube: FakeKube) -> None:
    """A Pod that is created comes back with the uid the server gave it."""
    created = kube.client().create(make_pod("a"))
    assert created.metadata.uid
    _, path, _, body = kube.requests[-1]
    assert path == PODS
    assert (body["kind"], body["apiVersion"]) == ("Pod", "v1")


def test_dry_run_is_a_query(kube: FakeKube) -> None:
    kube.client().create(make_pod("a"), dry_run=True)
    assert kube.requests[-1][2] == {"dryRun": "All"}


def test_get_of_what_is_not_there_raises_not_found(kube: FakeKube) -> None:
    with pytest.raises(errors.NotFound) as caught:
        kube.client().get(Pod, "nope", "default")
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")
    assert "nope" in str(caught.value)


def test_second_create_raises_already_exists_not_conflict(kube: FakeKube) -> None:
    client = kube.client()
    client.create(make_pod("a"))
    with pytest.raises(errors.AlreadyExists):
        client.create(make_pod("a"))


def test_replace_of_an_old_version_conflicts(kube: FakeKube) -> None:
    client = kube.client()
    pod = client.create(make_pod("a"))
    assert client.replace(pod).metadata.resource_version == pod.metadata.resource_version, "nothing changed"
    client.patch(Pod, "a", "default", MergePatch({"metadata": {"labels": {"x": "y"}}}))
    with pytest.raises(errors.Conflict):
        client.replace(pod)


def test_cluster_wide_objects_have_no_namespace_in_their_path(kube: FakeKube) -> None:
    kube.client().create(Node(metadata=ObjectMeta(name="n1")))
    assert kube.client().get(Node, "n1").metadata.name == "n1"


def test_a_namespaced_object_without_namespace_is_the_callers_mistake(kube: FakeKube) -> None:
    with pytest.raises(ValueError, match="Pod a needs a namespace"):
        kube.client().get(Pod, "a")


def test_list_follows_pages(kube: FakeKube) -> None:
    """Seven objects in pages of three are one list."""
    for number in range(7):
        kube.put(f"{PODS}/p{number}", {})
    listed = kube.client().list(Pod, "default", limit=3)
    assert [p.metadata.name for p in listed.items] == [f"p{n}" for n in range(7)]
    assert listed.resource_version == str(kube.version)
    assert len(kube.requests) == 3


def test_list_starts_over_when_its_pages_expire(kube: FakeKube) -> None:
    for number in range(4):
        kube.put(f"{PODS}/p{number}", {})
    kube.on_request = lambda _m, _p, query, _b: failure(410, "Expired", "old") if "continue" in query else None
    assert len(kube.client().list(Pod, "default", limit=2).items) == 4


def test_list_over_all_namespaces_and_by_selectors(kube: FakeKube) -> None:
    kube.put(f"{PODS}/a", {"metadata": {"labels": {"app": "x"}}})
    kube.put("/api/v1/namespaces/other/pods/b", {"metadata": {"labels": {"app": "x"}}})
    kube.put("/api/v1/namespaces/other/pods/c", {"spec": {"nodeName": "n1"}})
    client = kube.client()
    assert len(client.list(Pod).items) == 3
    assert [p.metadata.name for p in client.list(Pod, label_selector="app=x").items] == ["a", "b"]
    assert [p.metadata.name for p in client.list(Pod, field_selector="spec.nodeName=n1").items] == ["c"]


def test_an_item_that_does_not_fit_is_named_or_left_out(kube: FakeKube, capsys: pytest.CaptureFixture[str]) -> None:
    kube.put(f"{PODS}/bad", {"spec": {"nodeName": 5}})
    kube.put(f"{PODS}/good", {})
    with pytest.raises(errors.Undecodable, match="nodeName"):
        kube.client().list(Pod, "default")
    listed = kube.client().list(Pod, "default", skip_invalid=True)
    assert [p.metadata.name for p in listed.items] == ["good"]
    assert "does not fit" in capsys.readouterr().err


def test_json_patch_with_a_test_that_fails_changes_nothing(kube: FakeKube) -> None:
    client = kube.client()
    pod = client.create(make_pod("a"))
    stale = JsonPatch([op.test("/metadata/resourceVersion", "1"), op.add("/metadata/labels", {"x": "y"})])
    with pytest.raises(errors.Invalid):
        client.patch(Pod, "a", "default", stale)
    assert client.get(Pod, "a", "default") == pod


def test_patches_carry_their_type(kube: FakeKube) -> None:
    client = kube.client()
    client.create(make_pod("a"))
    label = pointer("metadata", "labels", "kubevirt.io/nodeName")
    assert label == "/metadata/labels/kubevirt.io~1nodeName"
    client.patch(Pod, "a", "default", MergePatch({"metadata": {"labels": {"a": "b"}}}))
    changed = client.patch(Pod, "a", "default", JsonPatch([op.add(label, "n1"), op.remove("/metadata/labels/a")]))
    assert changed.metadata.labels == {"kubevirt.io/nodeName": "n1"}
    assert ApplyPatch({}, "me").query() == {"fieldManager": "me", "force": "true"}


def test_delete_only_that_very_object(kube: FakeKube) -> None:
    client = kube.client()
    pod = client.create(make_pod("a"))
    with pytest.raises(errors.Conflict):
        client.delete(Pod, "a", "default", uid="another")
    client.delete(Pod, "a", "default", uid=pod.metadata.uid, grace_period_s=0, propagation="Background")
    assert kube.requests[-1][3]["gracePeriodSeconds"] == 0
    assert kube.requests[-1][3]["propagationPolicy"] == "Background"
    assert not kube.objects


def test_refusal_carries_the_fields(kube: FakeKube) -> None:
    cause = {"reason": "FieldValueInvalid", "field": "spec.domain", "message": "bad"}
    body = {"kind": "Status", "code": 422, "reason": "Invalid", "message": "no", "details": {"causes": [cause]}}
    kube.on_request = lambda *_: (422, body, {})
    with pytest.raises(errors.Invalid) as caught:
        kube.client().create(make_pod("a"))
    assert [(c.field, c.message) for c in caught.value.causes] == [("spec.domain", "bad")]


def test_an_answer_that_is_no_status_still_says_something(kube: FakeKube) -> None:
    kube.on_request = lambda *_: (502, b"bad gateway\nmore", {})
    with pytest.raises(errors.ApiError, match=r"^bad gateway$") as caught:
        kube.client().create(make_pod("a"))
    assert caught.value.status == 502


def test_a_busy_server_is_asked_again_when_it_says_so(kube: FakeKube) -> None:
    """429 with Retry-After is repeated, also for a write, after the time the server asked for."""
    clock = FakeClock()
    answers = [(429, b"{}", {"Retry-After": "7"}), (503, b"{}", {"Retry-After": "1"})]
    kube.on_request = lambda *_: answers.pop(0) if answers else None
    done: list[Pod] = []
    thread = threading.Thread(target=lambda: done.append(kube.client(clock=clock).create(make_pod("a"))))
    thread.start()
    eventually(clock.waiters)
    clock.step(6.9)
    assert len(kube.requests) == 1
    clock.step(0.2)
    eventually(lambda: len(kube.requests) == 2 and clock.waiters())
    clock.step(1.1)
    thread.join(5)
    assert done[0].metadata.name == "a"


def test_503_without_retry_after_is_an_error_at_once(kube: FakeKube) -> None:
    kube.on_request = lambda *_: failure(503, "ServiceUnavailable", "later")
    with pytest.raises(errors.ApiError, match="later"):
        kube.client().list(Pod)
    assert len(kube.requests) == 1


def test_a_retry_that_does_not_fit_the_deadline_is_not_tried(kube: FakeKube) -> None:
    kube.on_request = lambda *_: (429, b"{}", {"Retry-After": "60"})
    with pytest.raises(errors.ApiError):
        kube.client(timeout_s=2).list(Pod)
    assert len(kube.requests) == 1


def test_refused_get_is_tried_again_until_the_server_is_back(kube: FakeKube) -> None:
    kube.put(f"{PODS}/a", {})
    client = kube.client()
    kube.down()
    back = threading.Timer(0.15, kube.up)
    back.start()
    assert client.get(Pod, "a", "default").metadata.name == "a"
    back.join()


def test_refused_write_is_not_repeated(kube: FakeKube) -> None:
    client = kube.client()
    kube.down()
    with pytest.raises(errors.Unreachable, match=rf"127.0.0.1:{kube.port}: connection refused"):
        client.create(make_pod("a"))


def test_timeout_is_named(kube: FakeKube) -> None:
    release = threading.Event()
    kube.on_request = lambda *_: release.wait(5) and None
    with pytest.raises(errors.Unreachable, match="timed out"):
        kube.client().raw("POST", "/slow", timeout_s=0.1)
    release.set()


def test_raw_returns_the_body(kube: FakeKube) -> None:
    kube.on_request = lambda *_: (200, b"log line\n", {})
    assert kube.client().raw("GET", "/api/v1/x/log", query={"tail": "1"}) == b"log line\n"
    assert kube.requests[-1][:3] == ("GET", "/api/v1/x/log", {"tail": "1"})


def test_connections_are_kept_alive(kube: FakeKube) -> None:
    client = kube.client()
    for _ in range(5):
        client.list(ConfigMap)
    assert len(kube._sockets) == 1


def test_watch_delivers_and_ends_on_close(kube: FakeKube) -> None:
    """Objects, a bookmark, and `close` from another thread ends the iteration without an error."""
    kube.bookmarks = True
    watch = kube.client().watch(Pod, "default", resource_version=str(kube.version))
    kube.put(f"{PODS}/a", {})
    seen = []
    for event in watch:
        seen.append((event.type, event.object.metadata.name if event.object else "", event.resource_version))
        if event.type == "BOOKMARK":
            threading.Timer(0.05, watch.close).start()
    assert seen == [("ADDED", "a", "101"), ("BOOKMARK", "", "101")]


def test_watch_from_a_forgotten_version_raises_gone(kube: FakeKube) -> None:
    kube.put(f"{PODS}/a", {})
    kube.compact()
    with pytest.raises(errors.Gone):
        list(kube.client().watch(Pod, "default", resource_version="1"))


def test_a_broken_watch_raises(kube: FakeKube) -> None:
    watch = kube.client().watch(Pod, "default", resource_version=str(kube.version))
    threading.Timer(0.05, kube.break_connections).start()
    with pytest.raises(errors.Unreachable):
        list(watch)
