"""Image references, the store, and unpacking layers that try to break out."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
from unit.local.node.layouts import LayoutBuilder, directory, entry, hard_link, link

from virt_local.node.images import pull
from virt_local.node.images.layout import ImageError
from virt_local.node.images.reference import InvalidReference, normalize, pull_policy
from virt_local.node.images.store import ImageStore

ME = {"uid": os.getuid(), "gid": os.getgid()}


def file(name: str, data: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, data, **ME, **fields)


def folder(name: str) -> tuple[tarfile.TarInfo, bytes]:
    info, data = directory(name)
    info.uid, info.gid = os.getuid(), os.getgid()
    return info, data


def owned(made: tuple[tarfile.TarInfo, bytes]) -> tuple[tarfile.TarInfo, bytes]:
    made[0].uid, made[0].gid = os.getuid(), os.getgid()
    return made


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")


def unpacked(store: ImageStore, builder: LayoutBuilder) -> Path:
    return store.rootfs(store.import_layout(builder.write(), "x.internal/i:v1"))


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("me/app:v1", "docker.io/me/app:v1"),
        ("virtpod.internal/guest:v1", "virtpod.internal/guest:v1"),
        ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
        ("q.io/a@sha256:" + "0" * 64, "q.io/a@sha256:" + "0" * 64),
    ],
)
def test_names_have_one_full_form(text: str, full: str) -> None:
    assert normalize(text) == full


@pytest.mark.parametrize("text", ["", "UPPER/x", "a b", "x:y:z", "q.io/a@sha256:12", "../x", "-x", "--all"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidReference):
        normalize(text)


def test_latest_is_looked_up_anew_by_default() -> None:
    assert pull_policy("", "busybox") == "Always"
    assert pull_policy("", "busybox:1") == "IfNotPresent"
    assert pull_policy("Never", "busybox") == "Never"


def test_layers_build_on_one_another(store: ImageStore, tmp_path: Path) -> None:
    """Later files replace earlier ones, whiteouts remove them, an opaque directory hides only what is below."""
    builder = LayoutBuilder(tmp_path / "l")
    builder.layer([folder("d"), file("d/gone"), file("d/kept"), folder("o"), file("o/old"), file("f", b"1")])
    builder.layer(
        [file("d/.wh.gone", b""), file("f", b"2"), file("o/new"), file("o/.wh..wh..opq", b"")], compressed=False
    )
    root = unpacked(store, builder)
    assert sorted(os.listdir(root / "d")) == ["kept"]
    assert sorted(os.listdir(root / "o")) == ["new"]
    assert (root / "f").read_bytes() == b"2"


def test_links_modes_and_holes(store: ImageStore, tmp_path: Path) -> None:
    big = b"\0" * (3 << 20) + b"end"
    builder = LayoutBuilder(tmp_path / "l").layer(
        [file("a", big, mode=0o4750), owned(hard_link("b", "a")), owned(link("c", "a")), file("deep/er/d")]
    )
    root = unpacked(store, builder)
    assert (root / "b").stat().st_ino == (root / "a").stat().st_ino
    assert (root / "a").stat().st_mode & 0o7777 == 0o4750
    assert (root / "a").read_bytes() == big
    assert (root / "a").stat().st_blocks * 512 < 1 << 20
    assert os.readlink(root / "c") == "a"


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/../evil"])
def test_climbing_names_are_refused(store: ImageStore, tmp_path: Path, name: str) -> None:
    with pytest.raises(ImageError, match="leads out"):
        unpacked(store, LayoutBuilder(tmp_path / "l").layer([file(name)]))
    assert not (tmp_path / "evil").exists()
    assert not list((store.root / "rootfs").glob("*/"))


def test_a_link_to_the_outside_stays_inside(store: ImageStore, tmp_path: Path) -> None:
    """A layer that links to a directory of the host and writes through the link does not reach it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    trap = LayoutBuilder(tmp_path / "l").layer([owned(link("trap", str(outside))), file("trap/evil")])
    with pytest.raises(ImageError):
        unpacked(store, trap)
    assert list(outside.iterdir()) == []
    inside = str(outside).lstrip("/")
    same = [file(f"{inside}/mine"), owned(link("trap", str(outside))), owned(link("up", "../../..")), file("up/evil2")]
    root = unpacked(store, LayoutBuilder(tmp_path / "m").layer([*same, file("trap/evil")]))
    assert list(outside.iterdir()) == []
    assert sorted(os.listdir(root / inside)) == ["evil", "mine"]
    assert (root / "evil2").exists()


def test_a_hard_link_cannot_reach_the_host(store: ImageStore, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    for target in (str(secret), "../../../../../../.." + str(secret)):
        with pytest.raises(ImageError):
            unpacked(store, LayoutBuilder(tmp_path / f"l{len(target)}").layer([owned(hard_link("x", target))]))


def test_a_file_does_not_write_through_a_link_of_its_name(store: ImageStore, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("safe")
    root = unpacked(store, LayoutBuilder(tmp_path / "l").layer([owned(link("f", str(victim))), file("f", b"new")]))
    assert victim.read_text() == "safe"
    assert (root / "f").read_bytes() == b"new"
    assert not (root / "f").is_symlink()


def test_device_nodes_are_left_out(store: ImageStore, tmp_path: Path) -> None:
    node = entry("dev0", type=tarfile.CHRTYPE, devmajor=1, devminor=1)
    assert os.listdir(unpacked(store, LayoutBuilder(tmp_path / "l").layer([node]))) == []


def test_a_changed_blob_is_noticed(store: ImageStore, tmp_path: Path) -> None:
    builder = LayoutBuilder(tmp_path / "l").layer([file("a")])
    layout = builder.write()
    for blob in (layout / "blobs" / "sha256").iterdir():
        if blob.read_bytes()[:2] == b"\x1f\x8b":
            blob.write_bytes(blob.read_bytes() + b"more")
    with pytest.raises(ImageError, match="does not have the content"):
        store.import_layout(layout, "x.internal/i:v1")
    assert store.find("x.internal/i:v1") is None


def test_a_wrong_diff_id_is_noticed(store: ImageStore, tmp_path: Path) -> None:
    builder = LayoutBuilder(tmp_path / "l").layer([file("a")])
    builder._diff_ids = ["sha256:" + "0" * 64]
    with pytest.raises(ImageError, match="unpacked layer"):
        unpacked(store, builder)
    assert not [path for path in (store.root / "rootfs").iterdir() if path.is_dir()]


def test_a_digest_is_never_a_path(store: ImageStore, tmp_path: Path) -> None:
    layout = LayoutBuilder(tmp_path / "l").layer([file("a")]).write()
    index = layout / "index.json"
    index.write_text(index.read_text().replace("sha256:", "sha256:../../", 1))
    with pytest.raises(ImageError, match="is not a sha256 digest"):
        store.import_layout(layout, "x.internal/i:v1")


def test_store_lists_replaces_and_forgets(store: ImageStore, tmp_path: Path) -> None:
    first = store.import_layout(LayoutBuilder(tmp_path / "a").layer([file("a")]).write(), "x.internal/i:v1")
    second = store.import_layout(LayoutBuilder(tmp_path / "b").layer([file("b")]).write(), "x.internal/i:v1")
    assert first.digest != second.digest
    found = store.find("x.internal/i:v1")
    assert found is not None
    assert found.digest == second.digest
    assert [item.reference for item in store.entries()] == ["x.internal/i:v1"]
    assert store.is_imported("x.internal/i:v1")
    assert store.remove("x.internal/i:v1")
    assert not store.remove("x.internal/i:v1")
    assert store.find("x.internal/i:v1") is None


def test_the_image_for_this_machine_is_chosen(store: ImageStore, tmp_path: Path) -> None:
    import json

    from unit.local.node.layouts import ARCHITECTURE

    builder = LayoutBuilder(tmp_path / "l").layer([file("a")])
    layout = builder.write()
    mine = json.loads((layout / "index.json").read_text())["manifests"][0]
    mine["platform"] = {"architecture": ARCHITECTURE, "os": "linux"}
    other = {**mine, "digest": "sha256:" + "1" * 64, "platform": {"architecture": "s390x", "os": "linux"}}
    data = json.dumps({"schemaVersion": 2, "manifests": [other, mine]}).encode()
    nested = {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": builder.blob(data), "size": len(data)}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [nested]}))
    assert (store.rootfs(store.import_layout(layout, "x.internal/i:v1")) / "a").exists()


def test_a_directory_that_is_no_layout(store: ImageStore, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="is not an OCI image layout"):
        store.import_layout(tmp_path, "x.internal/i:v1")


def test_a_failed_pull_is_one_sentence_with_the_way_out(
    tmp_path: Path, store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """skopeo wraps its reason into a log line whose time differs at each try, and names the image again."""
    said = r"initializing source docker://x.internal/i:v1: pinging: Get \"https://x.internal/v2/\": no such host"
    program = tmp_path / "skopeo"
    program.write_text(
        f"""#!/bin/sh\ncat >&2 <<'END'\ntime="2026-01-01T00:00:00Z" level=fatal msg="{said}"\nEND\nexit 1\n"""
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ImageError) as caught:
        pull.pull(store, "x.internal/i:v1")
    assert str(caught.value) == (
        'cannot pull x.internal/i:v1: pinging: Get "https://x.internal/v2/": no such host; check the name and the '
        "network, or bring it as an OCI layout: virt-local image import LAYOUT_DIR --name x.internal/i:v1"
    )
    assert list(store.root.iterdir()) == []
