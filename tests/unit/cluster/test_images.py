"""Archives and layouts get the names by which a kubelet finds them, by tag and by digest."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.errors import ClusterError
from tests.cluster.images import Source, both_names, write_single
from tests.cluster.loading import digests, project_images

NAME = "virtpod.internal/thing:v1"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "thing.tar"
    write_single(path, NAME, {"bin/thing": b"#!program"}, ["/bin/thing"])
    return path


@pytest.fixture
def layout(tmp_path: Path, archive: Path) -> Path:
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path / "layout")
    return tmp_path / "layout"


def written(source: Source, name: str = "") -> tuple[dict[str, Any], set[str]]:
    """The index of what is sent to containerd, and the blobs in it."""
    stream = io.BytesIO()
    source.write(stream, source.images(name))
    stream.seek(0)
    with tarfile.open(fileobj=stream) as sent:
        index = sent.extractfile("index.json")
        assert index is not None
        return json.load(index), {name for name in sent.getnames() if name.startswith("blobs/")}


def test_an_archive_is_sent_whole_under_both_names(archive: Path) -> None:
    index, blobs = written(Source(archive))
    digest = index["manifests"][0]["digest"]
    names = [entry["annotations"]["io.containerd.image.name"] for entry in index["manifests"]]
    assert names == [NAME, f"virtpod.internal/thing@{digest}"]
    assert {entry["digest"] for entry in index["manifests"]} == {digest}
    assert len(blobs) == 3
    assert f"blobs/sha256/{digest.removeprefix('sha256:')}" in blobs


def test_a_layout_directory_is_the_same_and_takes_another_name(layout: Path, archive: Path) -> None:
    index, blobs = written(Source(layout), "virtpod.internal/other:v2")
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == "virtpod.internal/other:v2"
    assert blobs == written(Source(archive))[1]


def test_the_same_content_has_the_same_digest(tmp_path: Path, archive: Path) -> None:
    again = tmp_path / "again.tar"
    write_single(again, NAME, {"bin/thing": b"#!program"}, ["/bin/thing"])
    assert Source(again).images()[0].digest == Source(archive).images()[0].digest


@pytest.mark.parametrize("name", ["", "latest", "thing:v1", "host:5000/thing", "a/b@sha256:00"])
def test_a_name_without_registry_or_tag_is_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="give it with --name"):
        both_names(name, "sha256:00", "x.tar")


def test_what_is_no_image_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no image at"):
        Source(tmp_path / "nothing.tar")
    (tmp_path / "text.tar").write_text("no archive")
    with pytest.raises(ClusterError, match="no OCI layout"):
        Source(tmp_path / "text.tar").images()
    (tmp_path / "index.json").write_text('{"manifests": []}')
    with pytest.raises(ClusterError, match="holds no image"):
        Source(tmp_path).images()


def test_attestations_are_no_images(layout: Path) -> None:
    index = json.loads((layout / "index.json").read_text())
    index["manifests"].append({"digest": "sha256:1", "platform": {"architecture": "unknown", "os": "unknown"}})
    (layout / "index.json").write_text(json.dumps(index))
    assert len(Source(layout).images()) == 1


def test_one_name_is_not_for_two_images(layout: Path) -> None:
    index = json.loads((layout / "index.json").read_text())
    index["manifests"].append({**index["manifests"][0], "digest": "sha256:1"})
    (layout / "index.json").write_text(json.dumps(index))
    with pytest.raises(ClusterError, match="holds 2 images"):
        Source(layout).images(NAME)


def test_the_clients_table_is_understood() -> None:
    table = "REF  TYPE  DIGEST  SIZE\na/b:v1 application/x sha256:1 3.0 KiB linux/amd64 -\n\n"
    assert digests(table) == {"a/b:v1": "sha256:1"}


def test_what_has_been_built_is_loaded(tmp_path: Path) -> None:
    assert project_images(tmp_path) == []
    for path in (".build/images/virt-api.tar", ".build/guest/index.json"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()
    assert [(path.name, name) for path, name in project_images(tmp_path)] == [
        ("virt-api.tar", ""),
        ("guest", "virtpod.internal/guest:v1"),
    ]
