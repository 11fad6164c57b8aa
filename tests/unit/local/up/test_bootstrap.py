"""The first objects: written once, corrected when they differ, left alone otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.fake_kube import FakeKube, fake_kube

from virt_core.apis.registry import resource_by_kind
from virt_local.up.bootstrap import apply_all
from virt_local.up.instance import make_instance
from virt_local.up.manifests import MARK, base_objects, product_objects
from virt_local.up.material import make_material
from virt_local.up.readiness import Check, NotReady, wait_ready


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as made:
        yield made


def test_objects_are_written_once(kube: FakeKube, tmp_path: Path) -> None:
    objects = base_objects(make_material(make_instance("t", str(tmp_path))))
    client = kube.client()
    assert apply_all(client, objects) == len(objects)
    assert apply_all(client, objects) == 0
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/view"
    kube.objects[role]["metadata"]["annotations"][MARK] = "older"
    assert apply_all(client, objects) == 1
    assert kube.objects[role]["metadata"]["annotations"][MARK] != "older"


def test_every_object_has_a_place_and_a_mark(tmp_path: Path) -> None:
    instance = make_instance("t", str(tmp_path))
    objects = product_objects(instance, make_material(instance))
    for obj in objects:
        resource = resource_by_kind(obj["kind"])
        assert resource.namespaced == ("namespace" in obj["metadata"]), obj["metadata"]["name"]
        assert obj["metadata"]["annotations"][MARK]


def test_the_product_knows_our_authority_and_port(tmp_path: Path) -> None:
    instance = make_instance("t", str(tmp_path), 9000)
    material = make_material(instance)
    objects = product_objects(instance, material)
    text = json.dumps(objects)
    assert "Q0FfQlVORExF" not in text
    (endpoint,) = (obj for obj in objects if obj["kind"] == "EndpointSlice")
    assert endpoint["ports"][0]["port"] == 10000
    assert product_objects(instance, material) == objects, "the kept copy differs"


class Stop:
    def wait(self, _seconds: float) -> bool:
        return False


def test_waiting_names_what_is_not_ready() -> None:
    told: list[str] = []
    answers = iter([False, True])
    checks = [Check("slow", lambda: next(answers)), Check("never", lambda: False)]
    with pytest.raises(NotReady) as caught:
        wait_ready(checks, within_s=0.02, stop=Stop(), tell=told.append)  # type: ignore[arg-type]
    assert caught.value.component == "never"
    assert told == ["slow"]


def test_waiting_ends_early_for_a_component_that_keeps_dying() -> None:
    with pytest.raises(NotReady, match="apiserver does not start: it ended 5 times"):
        wait_ready(
            [Check("apiserver", lambda: False)],
            within_s=60,
            stop=Stop(),  # type: ignore[arg-type]
            tell=lambda _: None,
            hopeless=lambda _: "it ended 5 times",
        )
