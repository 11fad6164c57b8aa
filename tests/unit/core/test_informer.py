"""The informer against a fake API server: nothing is lost, whatever the server does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from framework.fake_kube import FakeKube, failure
from framework.waiting import eventually, no_leaked_threads, running

from virt_core.apis.datavolume import DataVolume
from virt_core.apis.pods import Pod
from virt_core.kube import informer as informer_module
from virt_core.kube.informer import Informer, wait_for_sync

PODS = "/api/v1/namespaces/default/pods"
DATA_VOLUMES = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes"


@pytest.fixture(autouse=True)
def _quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_module, "_FIRST_BACKOFF_S", 0.005)


class Seen:
    """What the handlers were told."""

    def __init__(self, informer: Informer[Pod]) -> None:
        self.calls: list[tuple[str, ...]] = []
        informer.add_handler(
            lambda pod: self.calls.append(("add", pod.metadata.name)),
            lambda old, new: self.calls.append(("update", _label(old), _label(new))),
            lambda pod: self.calls.append(("delete", pod.metadata.name, _label(pod))),
        )


def _label(pod: Pod) -> str:
    return pod.metadata.labels.get("v", "")


def labelled(value: str) -> dict[str, object]:
    return {"metadata": {"labels": {"v": value}}}


def started(kube: FakeKube, **options: object) -> tuple[Informer[Pod], Seen]:
    informer: Informer[Pod] = Informer(kube.client(), Pod, **options)  # type: ignore[arg-type]
    return informer, Seen(informer)


def watching(kube: FakeKube, count: int = 1) -> Callable[[], bool]:
    return lambda: sum("watch" in query for _, _, query, _ in list(kube.requests)) >= count


def test_lists_then_follows(kube: FakeKube) -> None:
    """What was there, what comes, what changes and what goes."""
    kube.put(f"{PODS}/a", labelled("1"))
    informer, seen = started(kube)
    assert not informer.has_synced()
    with running(informer.run):
        eventually(informer.has_synced)
        kube.put(f"{PODS}/b", labelled("1"))
        kube.put(f"{PODS}/a", labelled("2"))
        kube.remove(f"{PODS}/b")
        eventually(lambda: len(seen.calls) == 4)
        assert [p.metadata.name for p in informer.list()] == ["a"]
        pod = informer.get("default/a")
        assert pod is not None
        assert _label(pod) == "2"
    assert seen.calls == [("add", "a"), ("add", "b"), ("update", "1", "2"), ("delete", "b", "1")]


def test_resumes_after_a_broken_connection_without_a_new_list(kube: FakeKube) -> None:
    """A dropped watch goes on where it was; what happened meanwhile arrives once."""
    informer, seen = started(kube)
    with running(informer.run):
        eventually(watching(kube))
        kube.put(f"{PODS}/a", {})
        eventually(lambda: seen.calls == [("add", "a")])
        kube.break_connections()
        kube.put(f"{PODS}/b", {})
        eventually(lambda: seen.calls == [("add", "a"), ("add", "b")])
    assert sum("watch" not in query for _, _, query, _ in kube.requests) == 1


def test_bookmarks_move_the_version(kube: FakeKube) -> None:
    """After a bookmark the watch resumes from it, although no object of ours has that version."""
    kube.bookmarks = True
    informer, _ = started(kube, label_selector="v=1")
    with running(informer.run):
        eventually(watching(kube))
        other = kube.put(f"{PODS}/other", labelled("2"))
        eventually(lambda: informer._version == other["metadata"]["resourceVersion"])
        kube.compact()
        kube.break_connections()
        eventually(watching(kube, 2))
        kube.put(f"{PODS}/mine", labelled("1"))
        eventually(lambda: informer.get("default/mine"))
    assert sum("watch" not in query for _, _, query, _ in kube.requests) == 1


def test_deletes_during_an_outage_are_reported_after_410(kube: FakeKube) -> None:
    """The server forgot the past while we were away: the new list shows what is gone, changed and made again."""
    for name in ("gone", "kept", "changed", "again"):
        kube.put(f"{PODS}/{name}", labelled("1"))
    informer, seen = started(kube)
    with running(informer.run):
        eventually(watching(kube))
        seen.calls.clear()
        kube.down()
        kube.remove(f"{PODS}/gone")
        kube.put(f"{PODS}/changed", labelled("2"))
        kube.remove(f"{PODS}/again")
        kube.put(f"{PODS}/again", labelled("3"))
        kube.put(f"{PODS}/new", labelled("1"))
        kube.compact()
        kube.up()
        eventually(lambda: len(seen.calls) == 5)
        assert len(informer.list()) == 4
    assert sorted(seen.calls) == [
        ("add", "again"),
        ("add", "new"),
        ("delete", "again", "1"),
        ("delete", "gone", "1"),
        ("update", "1", "2"),
    ]


def test_survives_a_server_that_is_not_there_yet(kube: FakeKube) -> None:
    kube.down()
    informer, _ = started(kube)
    kube.put(f"{PODS}/a", {})
    with running(informer.run):
        kube.up()
        eventually(lambda: informer.get("default/a"), within_s=10)


def test_an_error_answer_is_retried(kube: FakeKube) -> None:
    answers = [failure(500, "InternalError", "oops"), failure(403, "Forbidden", "not yet")]
    kube.on_request = lambda *_: answers.pop() if answers else None
    kube.put(f"{PODS}/a", {})
    informer, _ = started(kube)
    with running(informer.run):
        eventually(lambda: informer.get("default/a"))


def test_a_server_that_ends_every_watch_at_once_is_not_hammered(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informer_module, "_FIRST_BACKOFF_S", 60.0)
    kube.on_request = lambda _m, _p, query, _b: (200, b"", {}) if "watch" in query else None
    informer, _ = started(kube)
    with running(informer.run):
        eventually(lambda: informer._failures == 1)
    assert len(kube.requests) == 2


def test_indexes_follow_the_objects(kube: FakeKube) -> None:
    indexers = {"label": lambda pod: [_label(pod)] if _label(pod) else []}
    informer, _ = started(kube, indexers=indexers)
    kube.put(f"{PODS}/a", labelled("1"))
    kube.put(f"{PODS}/b", labelled("1"))
    with running(informer.run):
        eventually(lambda: len(informer.by_index("label", "1")) == 2)
        kube.put(f"{PODS}/b", labelled("2"))
        eventually(lambda: [p.metadata.name for p in informer.by_index("label", "2")] == ["b"])
        assert [p.metadata.name for p in informer.by_index("label", "1")] == ["a"]
        kube.remove(f"{PODS}/a")
        eventually(lambda: not informer.by_index("label", "1"))
    assert informer.by_index("label", "never") == []


def test_a_handler_that_raises_harms_nobody(kube: FakeKube, capsys: pytest.CaptureFixture[str]) -> None:
    informer: Informer[Pod] = Informer(kube.client(), Pod)

    def broken(_pod: Pod) -> None:
        raise RuntimeError("broken handler")

    informer.add_handler(on_add=broken)
    seen = Seen(informer)
    kube.put(f"{PODS}/a", {})
    with running(informer.run):
        eventually(lambda: seen.calls == [("add", "a")])
    assert "broken handler" in capsys.readouterr().err


def test_a_late_handler_hears_of_what_is_there(kube: FakeKube) -> None:
    kube.put(f"{PODS}/a", {})
    informer, _ = started(kube)
    with running(informer.run):
        eventually(informer.has_synced)
        late = Seen(informer)
        assert late.calls == [("add", "a")]


def test_transform_is_applied_to_all(kube: FakeKube) -> None:
    def strip(pod: Pod) -> Pod:
        pod.metadata.annotations = {}
        return pod

    kube.put(f"{PODS}/a", {"metadata": {"annotations": {"big": "x"}}})
    informer, _ = started(kube, transform=strip)
    with running(informer.run):
        pod = eventually(lambda: informer.get("default/a"))
        assert pod.metadata.annotations == {}


def test_stops_promptly_in_the_middle_of_a_watch(kube: FakeKube) -> None:
    """The stop ends a read that waits for a server that says nothing, and leaves no thread."""
    informer, _ = started(kube)
    with no_leaked_threads():
        with running(informer.run, within_s=2.0) as stop:
            eventually(watching(kube))
            assert wait_for_sync(stop, informer)
        kube.break_connections()


def test_wait_for_sync_ends_with_the_stop(kube: FakeKube) -> None:
    informer, _ = started(kube)
    with running(lambda _stop: None) as stop:
        stop.set()
        assert not wait_for_sync(stop, informer)


def test_a_kind_that_the_cluster_lacks_is_empty_and_is_found_when_it_comes(
    kube: FakeKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informer_module, "_ABSENT_S", 0.02)
    installed = [False]

    def without(_method: str, path: str, _query: dict[str, str], _body: object) -> object:
        return None if installed[0] or "cdi.kubevirt.io" not in path else failure(404, "NotFound", "no such kind")

    kube.on_request = without  # type: ignore[assignment]
    informer = Informer(kube.client(), DataVolume, optional=True)
    with running(informer.run):
        eventually(informer.has_synced)
        assert informer.list() == []
        kube.put(f"{DATA_VOLUMES}/dv", {"metadata": {"name": "dv", "namespace": "default"}})
        installed[0] = True
        eventually(lambda: informer.get("default/dv") is not None)
