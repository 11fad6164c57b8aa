"""The Debian packages in the images, held against the list in the checkout."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "hack/images"))
sys.path.append(str(ROOT / "hack/images/inside"))

import debs  # noqa: E402
import files  # noqa: E402
from problems import ImageError  # noqa: E402

A, B = "a" * 64, "b" * 64
LOCKED = {"libc6": debs.Deb("libc6", "2.36-9", A), "zlib1g": debs.Deb("zlib1g", "1:1.2", B)}


def test_a_list_reads_as_it_was_written() -> None:
    assert debs.parse(debs.render(LOCKED.values())) == LOCKED


def test_a_line_that_is_none_is_named() -> None:
    with pytest.raises(ImageError, match="the line 'libc6'"):
        debs.parse("libc6\n")


def test_the_list_of_the_checkout_is_whole() -> None:
    """Every image has at least its C library and Python."""
    [path] = (ROOT / "hack/images/locks").glob("debian-*.txt")
    locked = debs.parse(path.read_text())
    assert {"libc6", "python3.13-minimal", "libvirt0", "qemu-system-x86"} <= set(locked)
    assert path.read_text() == debs.render(locked.values())


def judge(found: debs.Deb, *, locked: bool = False) -> str:
    return debs.judge(debs.differences({found.name: found}, LOCKED), locked=locked)


def test_what_is_listed_needs_no_words() -> None:
    assert judge(LOCKED["libc6"], locked=True) == ""


NEWS = {
    "a newer version": (debs.Deb("libc6", "2.36-10", B), "libc6 2.36-9 → 2.36-10"),
    "a new package": (debs.Deb("libnew", "1", A), "libnew 1 is new"),
    "an unknown content": (debs.Deb("libc6", "2.36-9", ""), "the archive no longer lists it"),
}


@pytest.mark.parametrize("what", NEWS)
def test_news_of_debian_are_said_and_stop_only_a_locked_build(what: str) -> None:
    deb, words = NEWS[what]
    said = judge(deb)
    assert words in said
    assert "make images-lock" in said
    with pytest.raises(ImageError, match="--locked was given"):
        judge(deb, locked=True)


@pytest.mark.parametrize("locked", [False, True])
def test_another_content_of_a_known_version_stops_every_build(locked: bool) -> None:
    with pytest.raises(ImageError, match=r"is not what it says: libc6 2\.36-9 has other content"):
        judge(debs.Deb("libc6", "2.36-9", B), locked=locked)


def test_an_image_tells_its_packages(tmp_path: Path) -> None:
    record = f"Package: libc6\nStatus: install ok installed\nVersion: 2.36-9\nDescription: SHA256: no\nSHA256: {A}\n"
    path = image(tmp_path, {f"./{debs.RECORDS}libc6": record, "etc/passwd": "Package: other\nVersion: 1\n"})
    assert debs.of_image(path) == {"libc6": LOCKED["libc6"]}


def test_a_record_gets_the_hash_of_its_very_version() -> None:
    known = {("libc6", "2.36-9"): A}
    assert files.with_checksum("Package: libc6\nVersion: 2.36-9", known).endswith(f"\nSHA256: {A}")
    assert "SHA256" not in files.with_checksum("Package: libc6\nVersion: 2.36-8", known)


def image(folder: Path, content: dict[str, str]) -> Path:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for name, text in content.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    blobs: dict[str, bytes] = {}

    def blob(data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"digest": f"sha256:{digest}", "size": len(data)}

    config = blob(json.dumps({"architecture": "amd64"}).encode())
    manifest = {"config": config, "layers": [blob(gzip.compress(layer.getvalue()))]}
    blobs["index.json"] = json.dumps({"manifests": [blob(json.dumps(manifest).encode())]}).encode()
    path = folder / "image.tar"
    with tarfile.open(path, "w") as tar:
        for name, data in blobs.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path
