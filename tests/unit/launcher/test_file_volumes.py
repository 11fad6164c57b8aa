"""ConfigMaps, Secrets and their like as small images."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pycdlib
import pytest

from tests.unit.launcher.parts import paths_in, plain_vmi
from virt_core.apis.base import from_plain
from virt_core.apis.volumes import Volume
from virt_launcher.disks import file_volumes, iso
from virt_launcher.disks.iso_child import build
from virt_launcher.disks.prepare import DiskPreparer
from virt_launcher.errors import InvalidVMIError
from virt_launcher.process.children import Children


def as_the_node_writes(folder: Path, files: dict[str, str]) -> Path:
    """Names are links through `..data` to a directory with the newest state."""
    state = folder / "..2026_01_01"
    for name, text in files.items():
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text(text)
    (folder / "..data").symlink_to("..2026_01_01")
    for name in {name.split("/")[0] for name in files}:
        (folder / name).symlink_to(f"..data/{name}")
    return folder


def plan_of(root: Path, source: dict[str, Any]) -> Any:
    volume = from_plain({"name": "v", **source}, Volume)
    return file_volumes.plan(volume, "spec.volumes[0]", paths_in(root))


KINDS: dict[str, dict[str, Any]] = {
    "configMap": {"configMap": {"name": "c"}},
    "secret": {"secret": {"secretName": "s"}},
    "downwardAPI": {"downwardAPI": {"fields": []}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_of_a_volume(tmp_path: Path, kind: str) -> None:
    as_the_node_writes(tmp_path / "private/file-volumes/v", {"a.txt": "one", "deep/b": "two"})
    plan = plan_of(tmp_path, KINDS[kind])
    assert plan.files == {"a.txt": b"one", "deep/b": b"two"}
    assert (plan.label, plan.field) == ("cfgdata", f"spec.volumes[0].{kind}")


def test_a_token_comes_from_where_pods_have_it(tmp_path: Path) -> None:
    as_the_node_writes(tmp_path / "serviceaccount", {"token": "t", "ca.crt": "c", "namespace": "n"})
    plan = plan_of(tmp_path, {"serviceAccount": {"serviceAccountName": "s"}})
    assert set(plan.files) == {"token", "ca.crt", "namespace"}


def test_a_windows_answer_file_must_be_there(tmp_path: Path) -> None:
    folder = tmp_path / "private/file-volumes/v"
    as_the_node_writes(folder, {"notes.txt": "x"})
    source = {"sysprep": {"configMap": {"name": "c"}}}
    with pytest.raises(InvalidVMIError, match=r"spec\.volumes\[0\]\.sysprep: .*autounattend\.xml or unattend\.xml"):
        plan_of(tmp_path, source)
    (folder / "..data/Autounattend.xml").write_text("<xml/>")
    assert plan_of(tmp_path, source).label == "unattendCD"


def test_an_optional_volume_that_is_not_there_is_an_empty_image(tmp_path: Path) -> None:
    (tmp_path / "private/file-volumes/v").mkdir(parents=True)
    assert plan_of(tmp_path, {"configMap": {"name": "c", "optional": True}}).files == {}


def test_a_volume_that_the_pod_lacks(tmp_path: Path) -> None:
    with pytest.raises(InvalidVMIError, match="not mounted"):
        plan_of(tmp_path, {"configMap": {"name": "c"}})


@pytest.mark.parametrize("label", ["x" * 33, "é", "a\nb"])
def test_labels_that_no_image_can_have(tmp_path: Path, label: str) -> None:
    (tmp_path / "private/file-volumes/v").mkdir(parents=True)
    with pytest.raises(InvalidVMIError, match="volumeLabel"):
        plan_of(tmp_path, {"configMap": {"name": "c", "volumeLabel": label}})


def test_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_the_node_writes(tmp_path / "private/file-volumes/v", {"a": "x" * 100})
    monkeypatch.setattr(file_volumes, "_MAX_BYTES", 99)
    with pytest.raises(InvalidVMIError, match="more than 99 bytes"):
        plan_of(tmp_path, {"configMap": {"name": "c"}})


@pytest.mark.parametrize("label", ["cfgdata", "a label of more than 16"])
def test_long_names_and_labels_are_in_the_image(tmp_path: Path, label: str) -> None:
    root, target = tmp_path / "root", tmp_path / "x.iso"
    root.mkdir()
    (root / ("k" * 200)).write_text("long")
    (root / "short").write_text("short")
    build(label, root, target)
    image = pycdlib.PyCdlib()
    image.open(str(target))
    try:
        for name, text in (("k" * 200, b"long"), ("short", b"short")):
            found = io.BytesIO()
            image.get_file_from_iso_fp(found, rr_path=f"/{name}")
            assert found.getvalue() == text
        assert image.pvd.volume_identifier.decode().rstrip() == label
    finally:
        image.close()


def test_the_image_becomes_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[str, Path]] = []
    monkeypatch.setattr(iso, "begin", lambda plan, target, _children, _moment: begun.append((plan.label, target)))
    as_the_node_writes(tmp_path / "private/file-volumes/a", {"key": "value"})
    vmi = plain_vmi(
        domain={"memory": {"guest": "64Mi"}, "devices": {"disks": [{"name": "a"}]}},
        volumes=[{"name": "a", "secret": {"secretName": "s", "volumeLabel": "mine"}}],
    )
    prepared = DiskPreparer(paths_in(tmp_path), Children()).prepare(vmi)
    target = tmp_path / "ephemeral/file-disks/a.iso"
    assert begun == [("mine", target)]
    assert prepared.sources["a"].path == str(target)
