"""The exporter as its users and its attackers meet it: over TLS, byte for byte."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import socket
import ssl
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.waiting import eventually

from tests.functional.importer.rig import disk_bytes
from virt_core.apis.exportplan import PIECE, TOKEN_HEADER, ExportVolume
from virt_launcher.exporter import server
from virt_launcher.exporter.server import Places

from .rig import TOKEN, Exporter, exporting

SIZE = 2 * PIECE + 12345
DISK = disk_bytes(SIZE)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Exporter]:
    claim = tmp_path / "claim"
    claim.mkdir()
    (claim / "disk.img").write_bytes(DISK)
    with exporting(tmp_path, ExportVolume(name="root", path=str(claim))) as exporter:
        yield exporter


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """What a hostile user would put into a claim."""
    claim = tmp_path / "files"
    (claim / "deep" / "deeper").mkdir(parents=True)
    (claim / "deep" / "deeper" / "note.txt").write_text("hello")
    (claim / "<script>.html").write_text("<script>alert(1)</script>")
    (tmp_path / "outside").write_text("secret of the node")
    (claim / "link").symlink_to(tmp_path / "outside")
    (claim / "up").symlink_to("..")
    (claim / "token").symlink_to(tmp_path / "token" / "token")
    os.mkfifo(claim / "pipe")
    (claim / "lost+found").mkdir()
    return claim


def test_a_disk_comes_raw_packed_and_in_parts(disk: Exporter) -> None:
    code, headers, body = disk.ask("/volumes/root/disk.img")
    assert (code, headers["content-length"], body == DISK) == (200, str(SIZE), True)
    assert gzip.decompress(disk.ask("/volumes/root/disk.img.gz")[2]) == DISK
    code, headers, body = disk.ask("/volumes/root/disk.img", Range=f"bytes=1000000-{SIZE}")
    assert (code, headers["content-range"]) == (206, f"bytes 1000000-{SIZE - 1}/{SIZE}")
    assert body == DISK[1000000:]
    assert disk.ask("/volumes/root/disk.img", Range="bytes=-10")[2] == DISK[-10:]
    rest = disk.ask(f"/volumes/root/disk.img.gz?from={PIECE}")[2]
    assert gzip.decompress(rest) == DISK[PIECE:]
    code, headers, body = disk.ask("/volumes/root/disk.img", method="HEAD")
    assert (code, headers["content-length"], body) == (200, str(SIZE), b"")


@pytest.mark.parametrize("bad", ["bytes=x-1", "bytes=-", f"bytes={SIZE}-", "bytes=5-4", "lines=1-2", "bytes=0-1,3-4"])
def test_a_range_that_is_none_is_refused(disk: Exporter, bad: str) -> None:
    code, headers, _ = disk.ask("/volumes/root/disk.img", Range=bad)
    assert (code, headers["content-range"]) == (416, f"bytes */{SIZE}")


@pytest.mark.parametrize("bad", ["1", "-1", str(PIECE * 9), "x", "9" * 40])
def test_a_packed_disk_begins_at_a_piece(disk: Exporter, bad: str) -> None:
    assert disk.ask(f"/volumes/root/disk.img.gz?from={bad}")[0] == 416


def test_a_disk_that_has_changed_is_not_gone_on_with(disk: Exporter, tmp_path: Path) -> None:
    tag = disk.ask("/volumes/root/disk.img", Range="bytes=0-9")[1]["etag"]
    assert disk.ask("/volumes/root/disk.img", Range="bytes=5-9", If_Range=tag)[0] == 206
    (tmp_path / "claim" / "disk.img").write_bytes(b"another")
    assert disk.ask("/volumes/root/disk.img", Range="bytes=5-9", If_Range=tag)[::2] == (200, b"another")
    assert disk.ask("/volumes/root/disk.img.gz", If_Match=tag)[0] == 412


def test_the_checksum_is_that_of_the_disk(disk: Exporter) -> None:
    found = eventually(lambda: (answer := disk.ask("/volumes/root/disk.img.sha256"))[0] == 200 and answer, within_s=20)
    assert found[2].split()[0].decode() == hashlib.sha256(DISK).hexdigest()


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1], "é" * 10])
def test_nobody_without_the_token(disk: Exporter, token: str | None) -> None:
    sent = token.encode().decode("latin-1") if token else token
    for path in ("/volumes/root/disk.img", "/internal/manifests/all", "/internal/manifests/secret", "/nothing"):
        code, _, body = disk.ask(path, token=sent)
        assert (code, TOKEN.encode() in body) == (401, False)


def test_the_token_does_not_count_in_the_url(disk: Exporter, capfd: pytest.CaptureFixture[str]) -> None:
    assert disk.ask(f"/volumes/root/disk.img?{TOKEN_HEADER}={TOKEN}", token=None)[0] == 401
    disk.ask(f"/volumes/root/disk.img.sha256?{TOKEN_HEADER}={TOKEN}")
    assert TOKEN not in capfd.readouterr().err


def test_an_empty_token_lets_nobody_in(disk: Exporter, tmp_path: Path) -> None:
    (tmp_path / "token" / "token").write_text("")
    assert disk.ask("/volumes/root/disk.img", token="")[0] == 401
    assert disk.ask("/exportready", token=None)[0] == 503


def test_ready_needs_no_token_and_other_verbs_do_nothing(disk: Exporter) -> None:
    assert disk.ask("/exportready", token=None)[0] == 200
    for method in ("POST", "PUT", "DELETE", "CONNECT"):
        assert disk.ask("/volumes/root/disk.img", method=method)[0] == 501


@pytest.mark.parametrize(
    "path",
    [
        "/volumes/root/../root/disk.img",
        "/volumes/root/%2e%2e/token/token",
        "/volumes/../token/token",
        "/volumes/root//etc/passwd",
        "/volumes/root/dir/disk.img",
        "/volumes/root/disk.tar.gz",
        "/volumes/other/disk.img",
        "/volumes/root/disk.img/",
        "/volumes/root/disk.img%00",
    ],
)
def test_only_what_is_named_is_served(disk: Exporter, path: str) -> None:
    assert disk.ask(path)[0] == 404


def test_a_disk_that_is_a_link_is_not_read(tmp_path: Path) -> None:
    claim = tmp_path / "claim"
    claim.mkdir()
    (tmp_path / "outside").write_text("secret of the node")
    (claim / "disk.img").symlink_to(tmp_path / "outside")
    with exporting(tmp_path, ExportVolume(name="root", path=str(claim))) as exporter:
        for path in ("disk.img", "disk.img.gz", "disk.img.sha256"):
            code, _, body = exporter.ask(f"/volumes/root/{path}")
            assert (code, b"secret" in body) == (404, False)
        (claim / "disk.img").unlink()
        os.mkfifo(claim / "disk.img")
        assert exporter.ask("/volumes/root/disk.img")[0] == 404


def test_files_come_one_by_one_and_links_never(tmp_path: Path, files: Path) -> None:
    with exporting(tmp_path, ExportVolume(name="data", path=str(files), disk=False)) as exporter:
        code, headers, body = exporter.ask("/volumes/data/dir/")
        assert (code, headers["x-content-type-options"]) == (200, "nosniff")
        assert b"deep/" in body
        assert b"link" not in body
        assert b"<script>" not in body
        assert exporter.ask("/volumes/data/dir/deep/deeper/note.txt")[2] == b"hello"
        assert exporter.ask("/volumes/data/dir/deep/deeper/note.txt", Range="bytes=1-2")[2] == b"el"
        code, headers, _ = exporter.ask("/volumes/data/dir/%3Cscript%3E.html")
        assert (code, headers["content-type"]) == (200, "application/octet-stream")
        for path in ("link", "token", "up/outside", "../outside", "%2e%2e/outside", "pipe", "none", "up/", "a%00b"):
            assert exporter.ask(f"/volumes/data/dir/{path}")[0] == 404, path


def test_the_archive_has_links_as_links(tmp_path: Path, files: Path) -> None:
    with exporting(tmp_path, ExportVolume(name="data", path=str(files), disk=False)) as exporter:
        packed = exporter.ask("/volumes/data/disk.tar.gz")[2]
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        names = {member.name: member for member in archive.getmembers()}
        note = archive.extractfile("./deep/deeper/note.txt")
        assert note is not None
        assert note.read() == b"hello"
    assert names["./link"].issym()
    assert names["./token"].issym()
    assert "./pipe" not in names
    assert "./lost+found" not in names
    assert b"secret of the node" not in gzip.decompress(packed)
    assert TOKEN.encode() not in gzip.decompress(packed)


def test_manifests_as_json_and_yaml(tmp_path: Path) -> None:
    documents = {"internal": [{"kind": "ConfigMap"}, {"kind": "VirtualMachine"}]}
    with exporting(tmp_path, manifests=json.dumps(documents)) as exporter:
        found = json.loads(exporter.ask("/internal/manifests/all")[2])
        assert [each["kind"] for each in found["items"]] == ["ConfigMap", "VirtualMachine"]
        assert exporter.ask("/internal/manifests/all", Accept="application/yaml")[2].count(b"---\n") == 1
        assert exporter.ask("/external/manifests/all")[0] == 404
        secret = json.loads(exporter.ask("/internal/manifests/secret")[2])["items"][0]
        assert secret["metadata"]["name"] == "header-secret-mine"
        assert secret["stringData"] == {"token": f"{TOKEN_HEADER}:{TOKEN}"}


def test_a_crowd_without_the_token_keeps_nobody_out(disk: Exporter) -> None:
    """More connections than there are places, all silent: the oldest make room."""
    crowd = [socket.create_connection(("127.0.0.1", disk.port)) for _ in range(3 * server.WAITING)]
    try:
        code, _, body = disk.ask("/volumes/root/disk.img", Range="bytes=0-9")
        assert (code, body) == (206, DISK[:10])
    finally:
        for each in crowd:
            each.close()


def test_who_says_nothing_is_hung_up_on(disk: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.3)
    with socket.create_connection(("127.0.0.1", disk.port)) as silent:
        silent.settimeout(10)
        assert silent.recv(1) == b""
    context = ssl.create_default_context(cadata=disk.ca)
    with (
        socket.create_connection(("127.0.0.1", disk.port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as slow,
    ):
        slow.settimeout(10)
        slow.sendall(b"GET /volumes")
        assert slow.recv(1) == b""


def test_downloads_are_counted_and_slow_readers_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from virt_launcher.exporter import handler

    monkeypatch.setattr(handler, "SILENCE_S", 1.0)
    claim = tmp_path / "claim"
    claim.mkdir()
    (claim / "disk.img").write_bytes(os.urandom(32 << 20))
    with exporting(tmp_path, ExportVolume(name="root", path=str(claim)), places=Places(downloads=1)) as exporter:
        slow = exporter.connect()
        slow.request("GET", "/volumes/root/disk.img", headers={TOKEN_HEADER: TOKEN})
        answer = slow.getresponse()
        answer.read(1000)
        code, headers, _ = exporter.ask("/volumes/root/disk.img", method="HEAD")
        assert (code, headers["retry-after"]) == (503, "5")
        eventually(lambda: exporter.ask("/volumes/root/disk.img", method="HEAD")[0] == 200, within_s=20)
        slow.close()
