"""Disks out of a registry, out of a mounted image, out of another claim, and from whoever sends one."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import socket
import struct
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from framework.waiting import eventually

from virt_core.apis import importplan
from virt_core.apis.importplan import ImportPlan
from virt_core.runtime.files import SafeDir
from virt_launcher.importer import registry
from virt_launcher.importer.errors import Refused
from virt_launcher.importer.fill import Filler
from virt_launcher.importer.http import Access
from virt_launcher.importer.journal import Journal
from virt_launcher.importer.progress import Meter
from virt_launcher.importer.registry import Registry, parse
from virt_launcher.importer.target import FileTarget
from virt_launcher.importer.upload import Receiver, receive

from .rig import MIB, converted, disk_bytes, disk_of, import_from

RAW = disk_bytes(8 * MIB)


def layer(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(made.getvalue(), 1)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Store(ThreadingHTTPServer):
    """A registry that wants a token."""

    documents: dict[str, bytes]
    token = "sesame"

    def put(self, blobs: list[bytes]) -> None:
        manifest = json.dumps({"layers": [{"digest": digest(each), "size": len(each)} for each in blobs]}).encode()
        platform = {"architecture": registry._ARCHITECTURES.get(registry.platform.machine(), ""), "os": "linux"}
        other = {"digest": digest(b"other"), "platform": {"architecture": "none", "os": "linux"}}
        index = json.dumps({"manifests": [other, {"digest": digest(manifest), "platform": platform}]}).encode()
        self.documents = {"manifests/v1": index, f"manifests/{digest(manifest)}": manifest}
        self.documents |= {f"blobs/{digest(each)}": each for each in blobs}


class _Registry(BaseHTTPRequestHandler):
    server: Store
    timeout = 20

    def do_GET(self) -> None:
        if self.path.startswith("/token"):
            self._answer(200, json.dumps({"token": self.server.token}).encode())
        elif self.headers.get("Authorization") != f"Bearer {self.server.token}":
            port = self.server.server_address[1]
            self._answer(401, b"", f'Bearer realm="http://127.0.0.1:{port}/token",service="me"')
        else:
            found = self.server.documents.get(self.path.removeprefix("/v2/some/disk/"))
            self._answer(404 if found is None else 200, found or b"")

    def _answer(self, code: int, body: bytes, challenge: str = "") -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def store() -> Iterator[Store]:
    server = Store(("127.0.0.1", 0), _Registry)
    thread = threading.Thread(target=server.serve_forever, name="registry")
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def filler(tmp_path: Path) -> Iterator[Filler]:
    claim = tmp_path / "claim"
    claim.mkdir()
    with SafeDir.open_trusted(claim) as directory:
        target = FileTarget(directory, 64 * MIB)
        plan = ImportPlan(source=importplan.UPLOAD, size=64 * MIB)
        yield Filler(plan, target, Journal(directory), Meter())
        target.close()


def pull(store: Store, filler: Filler) -> Any:
    source = Registry(parse(f"docker://127.0.0.1:{store.server_address[1]}/some/disk:v1"), Access(), Meter())
    source._root = source._root.replace("https://", "http://")  # TLS is the library's.
    return filler.fill(source.disk(1 << 30))


def test_a_disk_out_of_a_registry(tmp_path: Path, store: Store, filler: Filler) -> None:
    image = converted(tmp_path, RAW, "-c", "-O", "qcow2")
    store.put([layer({"etc/passwd": b"x"}), layer({"./disk/my.qcow2": image, "after": bytes(MIB)})])
    assert pull(store, filler).format == "qcow2"
    assert disk_of(tmp_path / "claim") == RAW


def test_a_layer_with_another_digest_leaves_no_disk(tmp_path: Path, store: Store, filler: Filler) -> None:
    good = layer({"disk/disk.img": RAW})
    store.put([good])
    store.documents[f"blobs/{digest(good)}"] = layer({"disk/disk.img": bytes(len(RAW))})
    with pytest.raises(Refused, match="another digest"):
        pull(store, filler)
    assert not (tmp_path / "claim" / "disk.img").exists()


@pytest.mark.parametrize(
    ("files", "words"),
    [({"disk/a": RAW, "disk/b": RAW}, "several files"), ({"data/a": RAW}, "no file in its directory")],
)
def test_images_without_one_disk(store: Store, filler: Filler, files: dict[str, bytes], words: str) -> None:
    store.put([layer(files)])
    with pytest.raises(Refused, match=words):
        pull(store, filler)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_what_is_no_file_in_an_image_is_no_disk(store: Store, filler: Filler, kind: bytes) -> None:
    """A link out of the image is not followed: nothing of ours becomes somebody's disk."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        info = tarfile.TarInfo("disk/disk.img")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    store.put([gzip.compress(made.getvalue())])
    with pytest.raises(Refused, match="no file in its directory"):
        pull(store, filler)


def test_a_link_in_an_image_that_the_node_has_mounted_is_no_disk(tmp_path: Path) -> None:
    source = tmp_path / "source" / "disk"
    source.mkdir(parents=True)
    (source / "disk.img").symlink_to("/etc/hostname")
    assert import_from(tmp_path / "claim", source="image").reason == importplan.NOT_FOUND
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "disk.img").write_bytes(RAW)
    (source / "disk.img").unlink()
    source.rmdir()
    source.symlink_to(tmp_path / "elsewhere")
    assert import_from(tmp_path / "other", source="image").reason == importplan.NOT_FOUND
    assert not (tmp_path / "other" / "disk.img").exists()


@pytest.mark.parametrize(
    ("url", "host", "name", "version"),
    [
        ("docker://a.test/b/c:1", "a.test", "b/c", "1"),
        ("docker://a.test:5000/b", "a.test:5000", "b", "latest"),
        ("docker://debian", "registry-1.docker.io", "library/debian", "latest"),
        ("docker://me/disk:x", "registry-1.docker.io", "me/disk", "x"),
        (f"docker://a.test/b@{digest(b'')}", "a.test", "b", digest(b"")),
    ],
)
def test_references(url: str, host: str, name: str, version: str) -> None:
    found = parse(url)
    assert (found.host, found.name, found.version) == (host, name, version)


@pytest.mark.parametrize("url", ["docker://", "docker://a.test/../b c", "oci:x", "docker://u:p@h.test/x"])
def test_references_that_are_none(url: str) -> None:
    with pytest.raises(Refused, match="no reference"):
        parse(url)


def test_an_image_that_the_node_has_mounted(tmp_path: Path) -> None:
    source = tmp_path / "source" / "disk"
    source.mkdir(parents=True)
    (source / "any.qcow2").write_bytes(converted(tmp_path, RAW, "-O", "qcow2"))
    assert import_from(tmp_path / "claim", source="image").format == "qcow2"
    assert disk_of(tmp_path / "claim") == RAW
    (source / "second").write_bytes(b"")
    assert import_from(tmp_path / "other", source="image").reason == importplan.NOT_FOUND


def test_a_copy_is_raw_whatever_it_looks_like_and_has_its_holes(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    image = converted(tmp_path, RAW, "-O", "qcow2")
    (source / "disk.img").write_bytes(image)
    assert import_from(tmp_path / "claim", source="clone").reason == "Completed"
    assert disk_of(tmp_path / "claim")[: len(image)] == image
    with (source / "disk.img").open("wb") as file:
        file.truncate(32 * MIB)
    assert import_from(tmp_path / "holes", source="clone").virtual_size == 32 * MIB
    assert (tmp_path / "holes" / "disk.img").stat().st_blocks == 0
    (source / "disk.img").unlink()
    (source / "disk.img").symlink_to("/etc/hostname")
    assert import_from(tmp_path / "link", source="clone").reason == importplan.TROUBLE


def post(port: int, body: bytes, length: int | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.putrequest("POST", importplan.PATH_UPLOAD)
        connection.putheader("Content-Length", str(len(body) if length is None else length))
        connection.endheaders()
        connection.send(body)
        if length is not None and connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_WR)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_whoever_sends_a_disk_learns_what_became_of_it(tmp_path: Path, filler: Filler) -> None:
    """Half of one, something else, and then a good one: only that ends the wait."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    reports: list[Any] = []
    thread = threading.Thread(target=lambda: reports.append(receive(filler, Meter(), port)), name="receiver")
    thread.start()
    image = converted(tmp_path, RAW, "-O", "qcow2")
    assert eventually_post(port, b"LUKS\xba\xbe" + bytes(9000)) == (
        400,
        "it is a LUKS file; use qcow2, raw, VMDK, VDI or VHDX",
    )
    # More than fits into the line: it is refused while it is still being sent.
    assert post(port, b"QED\0" + bytes(32 * MIB)) == (400, "it is a QED file; use qcow2, raw, VMDK, VDI or VHDX")
    code, words = post(port, image[: len(image) // 2], len(image))
    assert (code, "broke off" in words) == (503, True)
    assert not (tmp_path / "claim" / "disk.img").exists()
    assert post(port, image) == (200, f"qcow2, {len(RAW)} bytes")
    thread.join(20)
    assert reports[0].reason == "Completed"
    assert disk_of(tmp_path / "claim") == RAW


def eventually_post(port: int, body: bytes) -> tuple[int, str]:
    def attempt() -> tuple[int, str] | None:
        try:
            return post(port, body)
        except ConnectionRefusedError:
            return None

    found = eventually(attempt)
    assert found is not None
    return found


def test_a_sender_that_goes_before_the_answer_leaves_a_whole_disk(tmp_path: Path, filler: Filler) -> None:
    """It has sent everything: that it does not listen any more changes nothing, and nobody waits on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    reports: list[Any] = []
    thread = threading.Thread(target=lambda: reports.append(receive(filler, Meter(), port)), name="receiver")
    thread.start()
    head = f"POST /v1beta1/upload HTTP/1.1\r\nHost: x\r\nContent-Length: {len(RAW)}\r\n\r\n".encode()
    sender = eventually(lambda: _connected(port))
    assert isinstance(sender, socket.socket)
    sender.sendall(head + RAW)
    # Gone at once, and the answer meets a reset.
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    filled = tmp_path / "claim" / "disk.img"
    eventually(lambda: (tmp_path / "claim" / ".disk.img.part").stat().st_size > 0 or filled.exists())
    sender.shutdown(socket.SHUT_RD)
    eventually(filled.exists)
    sender.close()
    thread.join(20)
    assert [each.reason for each in reports] == ["Completed"]


def _connected(port: int) -> socket.socket | None:
    try:
        return socket.create_connection(("127.0.0.1", port), 5)
    except ConnectionRefusedError:
        return None


def test_only_one_sender_at_a_time(filler: Filler) -> None:
    receiver = Receiver(filler, Meter())
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[bytes]:
        yield RAW[:MIB]
        begun.set()
        assert go_on.wait(20)
        yield RAW[MIB:]

    thread = threading.Thread(target=lambda: receiver.take(slow(), len(RAW)), name="first")
    thread.start()
    assert begun.wait(20)
    with pytest.raises(Exception, match="somebody else"):
        receiver.take(iter([RAW]), len(RAW))
    go_on.set()
    thread.join(20)
    with pytest.raises(Refused, match="filled already"):
        receiver.take(iter([RAW]), len(RAW))
