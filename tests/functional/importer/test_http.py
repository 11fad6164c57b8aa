"""Images by HTTP, from servers with good and bad habits, byte for byte."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from virt_core.apis import importplan
from virt_launcher.importer import fill
from virt_launcher.importer.http import HttpSource

from .rig import MIB, converted, disk_bytes, disk_of, import_from
from .server import Habits, serving

RAW = disk_bytes()


@pytest.fixture
def claim(tmp_path: Path) -> Path:
    return tmp_path / "claim"


def test_a_raw_image_arrives_sparse_and_with_its_checksum(claim: Path) -> None:
    with serving(Habits(RAW)) as url:
        report = import_from(claim, url, checksum=f"sha256:{hashlib.sha256(RAW).hexdigest()}")
    assert (report.reason, report.format, report.virtual_size, report.taken) == ("Completed", "raw", len(RAW), len(RAW))
    assert disk_of(claim) == RAW
    assert (claim / "disk.img").stat().st_blocks * 512 < len(RAW)


@pytest.mark.parametrize("kind", ["sha512", "sha256", "md5"])
def test_another_checksum_leaves_no_disk(claim: Path, kind: str) -> None:
    wrong = hashlib.new(kind, b"something else").hexdigest()
    with serving(Habits(RAW)) as url:
        report = import_from(claim, url, checksum=f"{kind}:{wrong}")
    assert report.reason == importplan.CHECKSUM
    assert wrong in report.message
    assert not (claim / "disk.img").exists()


def test_a_checksum_that_is_none_is_refused(claim: Path) -> None:
    with serving(Habits(RAW)) as url:
        assert import_from(claim, url, checksum="sha256:beef").reason == importplan.INVALID
        assert import_from(claim, url, checksum="crc:00").reason == importplan.INVALID


@pytest.mark.parametrize("options", [("-O", "raw"), ("-O", "qcow2"), ("-c", "-O", "qcow2")])
def test_a_connection_that_is_cut_again_and_again_is_taken_up(tmp_path: Path, claim: Path, options: list[str]) -> None:
    image = converted(tmp_path, RAW, *options)
    habits = Habits(image, cut_after=len(image) // 4, cuts=3)
    with serving(habits) as url:
        report = import_from(claim, url, checksum=f"sha256:{hashlib.sha256(image).hexdigest()}")
    assert report.reason == "Completed", report
    assert habits.cuts == 0
    assert disk_of(claim) == RAW
    assert habits.sent < 2 * len(image)


def test_without_ranges_a_cut_is_told_and_nothing_is_presented(claim: Path) -> None:
    with serving(Habits(RAW, ranges=False, cut_after=MIB, cuts=2)) as url:
        report = import_from(claim, url)
        assert report.reason == importplan.TROUBLE
        assert "broke off" in report.message
        assert not (claim / "disk.img").exists()
        assert import_from(claim, url).reason == "Completed"
    assert disk_of(claim) == RAW


def test_a_server_that_lies_about_the_length_is_not_believed(claim: Path) -> None:
    with serving(Habits(RAW, ranges=False, claim_more=4096)) as url:
        assert import_from(claim, url).reason == importplan.TROUBLE
    assert not (claim / "disk.img").exists()


def test_without_a_length_a_raw_image_needs_a_checksum(claim: Path) -> None:
    with serving(Habits(RAW, ranges=False, say_length=False)) as url:
        report = import_from(claim, url)
        assert (report.reason, "checksum" in report.message) == (importplan.INVALID, True)
        good = f"md5:{hashlib.md5(RAW).hexdigest()}"
        assert import_from(claim, url, checksum=good).reason == "Completed"
    assert disk_of(claim) == RAW


@pytest.mark.parametrize("options", [("-O", "raw"), ("-O", "qcow2"), ("-c", "-O", "qcow2")])
def test_the_next_importer_goes_on_where_the_last_one_was_killed(
    tmp_path: Path, claim: Path, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fill, "_STEP", MIB)
    image = converted(tmp_path, RAW, *options)
    habits = Habits(image)
    with serving(habits) as url:
        monkeypatch.setattr(HttpSource, "stream", _killed_after(len(image) * 3 // 4))
        with pytest.raises(KeyboardInterrupt):
            import_from(claim, url)
        monkeypatch.undo()
        assert not (claim / "disk.img").exists()
        habits.sent = 0
        report = import_from(claim, url)
    assert report.reason == "Completed", report
    assert report.resumed >= MIB
    assert habits.sent < len(image)
    assert disk_of(claim) == RAW


def _killed_after(length: int) -> Callable[..., Iterator[bytes]]:
    whole = HttpSource.stream

    def stream(source: HttpSource, start: int = 0) -> Iterator[bytes]:
        taken = 0
        for chunk in whole(source, start):
            taken += len(chunk)
            yield chunk
            if taken > length:
                raise KeyboardInterrupt

    return stream


def test_a_source_that_became_another_is_taken_from_the_start(claim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill, "_STEP", MIB)
    habits, other = Habits(RAW, cut_after=8 * MIB, cuts=1000), disk_bytes(seed=8)
    with serving(habits) as url:
        habits.ranges = True
        habits.cut_after = 0
        assert import_from(claim, url).reason == importplan.TROUBLE
        habits.content, habits.etag, habits.cuts = other, '"two"', 0
        report = import_from(claim, url)
    assert (report.reason, report.resumed) == ("Completed", 0)
    assert disk_of(claim) == other


def test_a_claim_that_is_too_small_is_named(tmp_path: Path, claim: Path) -> None:
    image = converted(tmp_path, RAW, "-O", "qcow2")
    for content in (RAW, image):
        with serving(Habits(content)) as url:
            report = import_from(claim, url, size=16 * MIB)
        assert (report.reason, str(16 * MIB) in report.message) == (importplan.TOO_SMALL, True)
    assert not (claim / "disk.img").exists()


@pytest.mark.parametrize(
    ("status", "reason"), [(404, "SourceNotFound"), (403, "SourceDenied"), (500, "TransferFailed")]
)
def test_what_the_server_says_is_told(claim: Path, status: int, reason: str) -> None:
    with serving(Habits(RAW, status=status)) as url:
        report = import_from(claim, url)
    assert (report.reason, str(status) in report.message) == (reason, True)


def test_credentials_stay_with_their_host(tmp_path: Path, claim: Path) -> None:
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "accessKeyId").write_text("me")
    (tmp_path / "credentials" / "secretKey").write_text("word")
    (tmp_path / "headers" / "0").mkdir(parents=True)
    (tmp_path / "headers" / "0" / "any").write_text("X-Secret: yes")
    far, near = Habits(RAW), Habits(needs={"Authorization": "Basic bWU6d29yZA=="})
    with serving(far) as there, serving(near) as url:
        near.content, near.location = RAW, there
        report = import_from(claim, url, headers=["X-Plain: hello"])
    assert report.reason == "Completed"
    assert near.seen[0]["Authorization"].startswith("Basic ")
    assert near.seen[0]["X-Secret"] == "yes"
    assert all("Authorization" not in each and "X-Secret" not in each for each in far.seen)
    assert far.seen[0]["X-Plain"] == "hello"


def test_circles_and_other_schemes_are_refused(claim: Path) -> None:
    with serving(Habits(RAW, location="/again")) as url:
        assert import_from(claim, url).reason == importplan.INVALID
    with serving(Habits(RAW, location="file:///etc/passwd")) as url:
        assert import_from(claim, url).reason == importplan.INVALID
    assert import_from(claim, "file:///etc/passwd").reason == importplan.INVALID


def test_an_existing_disk_is_not_written_over(claim: Path) -> None:
    claim.mkdir()
    (claim / "disk.img").write_bytes(b"mine")
    with serving(Habits(RAW)) as url:
        assert import_from(claim, url).reason == importplan.INVALID
    assert disk_of(claim) == b"mine"


def test_an_importer_that_was_killed_before_its_last_words_says_them_the_next_time(claim: Path) -> None:
    with serving(Habits(RAW)) as url:
        import_from(claim, url)
        assert import_from(claim, url).reason == "Completed"


def test_a_blank_disk_has_the_size_of_the_claim(claim: Path) -> None:
    report = import_from(claim, source=importplan.BLANK, size=8 * MIB)
    assert (report.reason, report.virtual_size) == ("Completed", 8 * MIB)
    assert disk_of(claim) == bytes(8 * MIB)
    assert (claim / "disk.img").stat().st_blocks == 0


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_is_named_and_leaves_no_disk(tmp_path: Path) -> None:
    claim, image = tmp_path / "claim", os.urandom(8 * MIB)
    claim.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(claim)], check=True, timeout=20)
    try:
        with serving(Habits(image)) as url:
            report = import_from(claim, url)
        assert (report.reason, report.message) == (importplan.NO_SPACE, "there is no space left in the claim")
        assert not (claim / "disk.img").exists()
    finally:
        subprocess.run(["umount", str(claim)], check=True, timeout=20)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="makes a loop device")
@pytest.mark.parametrize("options", [("-O", "raw"), ("-c", "-O", "qcow2")])
def test_a_device_gets_the_disk_and_keeps_nothing_of_what_was_there(tmp_path: Path, options: tuple[str, ...]) -> None:
    backing, image = tmp_path / "backing", converted(tmp_path, RAW, *options)
    backing.write_bytes(b"\xaa" * 32 * MIB)
    made = subprocess.run(
        ["losetup", "--find", "--show", str(backing)], check=True, capture_output=True, text=True, timeout=20
    )
    device = made.stdout.strip()
    try:
        with serving(Habits(image)) as url:
            report = import_from(tmp_path / "claim", url, block=True, size=32 * MIB, device=device)
        assert report.reason == "Completed", report
        found = Path(device).read_bytes()
    finally:
        subprocess.run(["losetup", "--detach", device], check=True, timeout=20)
    assert found[: len(RAW)] == RAW
    assert not any(found[len(RAW) :])
