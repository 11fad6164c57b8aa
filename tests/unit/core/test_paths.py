"""A name that a user gave never leads a path elsewhere."""

from __future__ import annotations

import pytest
from framework.fake_kube import FakeKube

from virt_core.apis.config import Secret
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.pods import Pod
from virt_core.apis.registry import UnusableName, resource_of, segment
from virt_core.kube.errors import NotFound
from virt_core.kube.patch import MergePatch
from virt_core.kube.typelookup import KubeLookup

ASTRAY = ("../secrets/s", "..", ".", "p/exec", "%2e%2e", "..%2fsecrets%2fs", "a%2Fb")
QUOTED = {"p?watch=true": "p%3Fwatch%3Dtrue", "p#x": "p%23x", "a b": "a%20b", "ä": "%C3%A4", "p;x": "p%3Bx"}


@pytest.mark.parametrize("name", ASTRAY)
def test_what_leads_elsewhere_is_no_name(name: str) -> None:
    with pytest.raises(UnusableName):
        segment(name)


@pytest.mark.parametrize("name", QUOTED)
def test_what_ends_a_path_is_quoted(name: str) -> None:
    assert resource_of(Pod).path("default", name) == f"/api/v1/namespaces/default/pods/{QUOTED[name]}"


@pytest.mark.parametrize("name", ["a", "a.b-c", "system:node:x", "kube-root-ca.crt", "a..b"])
def test_names_stay_as_they_are(name: str) -> None:
    assert segment(name) == name


@pytest.mark.parametrize("name", ASTRAY)
def test_nothing_is_asked_for_what_cannot_be(kube: FakeKube, name: str) -> None:
    kube.put("/api/v1/namespaces/default/secrets/s", {})
    client = kube.client()
    pod = Pod(metadata=ObjectMeta(name=name, namespace="default"))
    for call in (
        lambda: client.get(Pod, name, "default"),
        lambda: client.get(Pod, "s", name),
        lambda: client.list(Pod, name),
        lambda: client.delete(Pod, name, "default"),
        lambda: client.patch(Pod, name, "default", MergePatch({})),
        lambda: client.replace(pod),
        lambda: client.watch(Pod, name, resource_version="1"),
        lambda: client.create(Secret(metadata=ObjectMeta(name="s", namespace=name))),
    ):
        with pytest.raises(NotFound):
            call()
    lookup = KubeLookup(client)
    assert lookup.get(Pod, name, "default") is None
    assert lookup.document("DataVolume", name, "default") is None
    assert kube.requests == []


def test_a_question_mark_does_not_become_a_query(kube: FakeKube) -> None:
    with pytest.raises(NotFound):
        kube.client().get(Pod, "p?watch=true", "default")
    assert [(path, query) for _, path, query, _ in kube.requests] == [
        ("/api/v1/namespaces/default/pods/p%3Fwatch%3Dtrue", {})
    ]
