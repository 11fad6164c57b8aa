"""Where disks are sent to: said where DataVolumes are ours, kept up to date, taken back, and otherwise left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from framework.fake_kube import FakeKube, failure, fake_kube

from virt_controller.datavolume.uploads import UploadPlace
from virt_controller.export.entrance import Entrance
from virt_core.apis.datavolume import DEFINITION, LABEL_IMPORTER
from virt_core.apis.datavolumecrd import definition as crd
from virt_core.runtime.clock import FakeClock

PATH = "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config"
KIND = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{DEFINITION}"
URL = "https://disks.example.test"
OURS = {LABEL_IMPORTER: "true"}


@pytest.fixture
def kube() -> Iterator[FakeKube]:
    with fake_kube() as fake:
        fake.put(KIND, definition(OURS))
        yield fake


def definition(labels: dict[str, str]) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(crd()))
    return plain | {"metadata": {"name": DEFINITION, "labels": labels}}


def config(status: dict[str, str], **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": "config", "labels": labels}, "spec": {}, "status": status}


def say(kube: FakeKube, url: str = URL, authority: str = "") -> None:
    place = UploadPlace(kube.client(), Entrance(url, authority), FakeClock())
    assert place.reconcile("config").requeue_after_s > 0


def writes(kube: FakeKube) -> list[tuple[str, str]]:
    return kube.methods("POST", "PATCH", "PUT", "DELETE")


def test_it_is_made_with_the_address_and_whom_to_trust_there(kube: FakeKube, tmp_path: Path) -> None:
    (file := tmp_path / "ca.pem").write_text("PEM")
    say(kube, authority=str(file))
    found = kube.objects[PATH]
    assert found["status"] == {"uploadProxyURL": URL, "uploadProxyCA": "PEM"}
    assert found["metadata"]["labels"] == OURS


def test_new_certificates_are_written_and_the_administrators_word_stays(kube: FakeKube, tmp_path: Path) -> None:
    override = {"uploadProxyURLOverride": "https://other.example.test"}
    kube.put(PATH, config({}) | {"spec": override})
    (file := tmp_path / "ca.pem").write_text("OLD")
    say(kube, authority=str(file))
    file.write_text("NEW")
    say(kube, authority=str(file))
    found = kube.objects[PATH]
    assert found["status"] == {"uploadProxyURL": URL, "uploadProxyCA": "NEW"}
    assert found["spec"] == override


def test_what_is_said_is_not_said_again(kube: FakeKube) -> None:
    say(kube)
    say(kube)
    assert len(writes(kube)) == 1


def test_an_address_that_is_no_more_is_taken_back(kube: FakeKube) -> None:
    say(kube)
    say(kube, url="")
    assert not any(kube.objects[PATH]["status"].values())
    say(kube, url="")
    assert len(writes(kube)) == 2


def test_without_an_address_nothing_is_said_and_nothing_of_others_taken(kube: FakeKube) -> None:
    say(kube, url="")
    assert PATH not in kube.objects
    kube.put(PATH, config({"uploadProxyURL": "https://by.hand.test"}))
    say(kube, url="")
    assert not writes(kube)


@pytest.mark.parametrize("labels", [{}, OURS | {"operator.cdi.kubevirt.io": ""}])
def test_where_data_volumes_are_cdis_its_config_is_its_own(kube: FakeKube, labels: dict[str, str]) -> None:
    kube.put(KIND, definition(labels))
    kube.put(PATH, config({"uploadProxyURL": "https://cdi.test"}))
    say(kube)
    assert not writes(kube)


def test_a_cluster_without_uploads_gets_no_retries(kube: FakeKube) -> None:
    """The chart takes the rights away with `dataVolumes.enabled`, the definition stays."""
    kube.on_request = lambda _, path, *__: failure(403, "Forbidden", "no") if path == PATH else None
    say(kube)
    assert not writes(kube)
