"""A VM copies claims of its own namespace; those of another only if its service account may."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from framework.fake_kube import FakeKube, fake_kube
from framework.vms import vm

from virt_controller.vm.clonesource import CloneGuard, CloneRefusedError
from virt_core.apis.base import from_plain
from virt_core.apis.vm import DataVolumeTemplateSpec
from virt_core.apis.volumes import Volume

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SOURCES = "/apis/cdi.kubevirt.io/v1beta1/namespaces/{}/datasources/{}"


class Court:
    """Notes what it is asked, and says yes or no."""

    def __init__(self) -> None:
        self.allows = False
        self.asked: list[dict[str, Any]] = []

    def __call__(self, method: str, path: str, _query: dict[str, str], body: Any) -> Any:
        if method != "POST" or path != REVIEWS:
            return None
        self.asked.append(body["spec"])
        return 201, body | {"status": {"allowed": self.allows}}, {}


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as fake:
        yield fake


@pytest.fixture
def court(kube: FakeKube) -> Court:
    court = Court()
    kube.on_request = court
    return court


def template(**spec: Any) -> DataVolumeTemplateSpec:
    return from_plain({"metadata": {"name": "copy"}, "spec": spec}, DataVolumeTemplateSpec)


def of(kind: str, namespace: str, name: str = "gold") -> dict[str, Any]:
    return {kind: {"namespace": namespace, "name": name}}


@pytest.mark.parametrize(
    "spec",
    [
        {"source": {"blank": {}}},
        {"source": {"http": {"url": "https://example.com/x"}}},
        {"source": of("pvc", "default")},
        {"source": {"pvc": {"name": "gold"}}},
    ],
)
def test_nobody_is_asked_about_what_is_the_vms_own(kube: FakeKube, court: Court, spec: dict[str, Any]) -> None:
    CloneGuard(kube.client()).check(vm(), template(**spec))
    assert court.asked == []


@pytest.mark.parametrize("kind", ["pvc", "snapshot"])
def test_a_claim_of_others_needs_the_right_of_the_vms_account(kube: FakeKube, court: Court, kind: str) -> None:
    guard, wanted = CloneGuard(kube.client()), template(source=of(kind, "images"))
    with pytest.raises(CloneRefusedError, match="default/default may not copy images/gold"):
        guard.check(vm(), wanted)
    (asked,) = court.asked
    assert asked["user"] == "system:serviceaccount:default:default"
    assert "system:serviceaccounts:default" in asked["groups"]
    attributes = {key: value for key, value in asked["resourceAttributes"].items() if value}
    assert attributes == {
        "namespace": "images", "verb": "create", "group": "cdi.kubevirt.io", "resource": "datavolumes",
        "subresource": "source", "name": "gold",
    }  # fmt: skip
    court.allows = True
    guard.check(vm(), wanted)


def test_the_account_is_the_one_that_the_guest_gets(kube: FakeKube, court: Court) -> None:
    machine = vm()
    assert machine.spec.template is not None
    given = from_plain({"name": "t", "serviceAccount": {"serviceAccountName": "robot"}}, Volume)
    machine.spec.template.spec.volumes.append(given)
    with pytest.raises(CloneRefusedError):
        CloneGuard(kube.client()).check(machine, template(source=of("pvc", "images")))
    assert court.asked[0]["user"] == "system:serviceaccount:default:robot"


def test_a_data_source_is_followed_to_its_claim(kube: FakeKube, court: Court) -> None:
    kube.put(SOURCES.format("default", "fedora"), {"spec": {"source": of("pvc", "images", "fedora-39")}})
    with pytest.raises(CloneRefusedError, match="images/fedora-39"):
        CloneGuard(kube.client()).check(vm(), template(sourceRef={"kind": "DataSource", "name": "fedora"}))


def test_a_data_source_of_others_that_is_not_there_opens_nothing(kube: FakeKube, court: Court) -> None:
    """It could be made a moment later, and point anywhere."""
    missing = {"kind": "DataSource", "name": "later", "namespace": "images"}
    with pytest.raises(CloneRefusedError):
        CloneGuard(kube.client()).check(vm(), template(sourceRef=missing))


def test_sources_that_point_in_a_circle_end(kube: FakeKube, court: Court) -> None:
    for one, other in (("a", "b"), ("b", "a")):
        nested = {"dataSource": {"name": other, "namespace": "images"}}
        kube.put(SOURCES.format("images", one), {"spec": {"source": nested}})
    circle = {"kind": "DataSource", "name": "a", "namespace": "images"}
    with pytest.raises(CloneRefusedError):
        CloneGuard(kube.client()).check(vm(), template(sourceRef=circle))
