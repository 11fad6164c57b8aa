"""What is answered, and to whom: to nobody without the token, but that the exporter is ready."""

from __future__ import annotations

import hmac
import html
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlsplit

import msgspec

from virt_core.apis import exportplan
from virt_core.apis.base import decode, encode
from virt_core.apis.exportplan import ExportPlan, ExportVolume, Manifests
from virt_core.runtime.files import open_beneath, read_beneath
from virt_launcher.exporter import archive, packing
from virt_launcher.exporter.disks import Disk, NoDisk, open_disk, open_file
from virt_launcher.exporter.server import SILENCE_S, Places
from virt_launcher.exporter.sums import Sums

_MAX_TOKEN = 4096
_MAX_MANIFESTS = 4 << 20
_MAX_LISTED = 10_000
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_OCTETS = "application/octet-stream"


@dataclass(frozen=True)
class Served:
    """What there is to serve."""

    plan: ExportPlan
    token_directory: str = exportplan.TOKEN_DIRECTORY
    tls_directory: str = exportplan.TLS_DIRECTORY
    places: Places = field(default_factory=Places)
    sums: Sums = field(default_factory=Sums)

    def token(self) -> bytes:
        """As the Secret says it now; empty: nobody gets in."""
        return _mounted(self.token_directory, exportplan.TOKEN_KEY, _MAX_TOKEN)

    def manifests(self) -> Manifests:
        text = _mounted(self.tls_directory, exportplan.MANIFESTS_FILE, _MAX_MANIFESTS)
        return decode(text, Manifests) if text else Manifests()

    def volume(self, name: str) -> ExportVolume | None:
        return next((each for each in self.plan.volumes if each.name == name), None)


def _mounted(directory: str, name: str, limit: int) -> bytes:
    """A file of a Secret. The names there are the node's own links through `..data`, which it swaps."""
    try:
        try:
            inside = os.readlink(f"{directory}/..data")
        except OSError:
            inside = "."
        return read_beneath(directory, f"{inside}/{name}", limit)
    except OSError:
        return b""


class Handler(BaseHTTPRequestHandler):
    """A subclass has what is `served`."""

    served: ClassVar[Served]
    protocol_version = "HTTP/1.1"
    server_version, sys_version = exportplan.PROGRAM, ""

    def do_GET(self) -> None:
        self._serve(head=False)

    def do_HEAD(self) -> None:
        self._serve(head=True)

    def _serve(self, *, head: bool) -> None:
        self.close_connection = True
        url = urlsplit(self.path)
        if url.path == exportplan.PATH_READY:
            self._text(200 if self.served.token() else 503, "ready" if self.served.token() else "there is no token")
            return
        if not self._knows_token():
            self._text(401, f"send the export's token as the header {exportplan.TOKEN_HEADER}")
            return
        if not self.served.places.begin(self.connection):
            self._text(503, "too many downloads at a time", {"Retry-After": "5"})
            return
        try:
            self.connection.settimeout(SILENCE_S)
            self._route(url.path, parse_qs(url.query), head=head)
        finally:
            self.served.places.end()

    def _knows_token(self) -> bool:
        """Never from the URL: that is written down by whoever passes it on."""
        token = self.served.token().strip()
        given = self.headers.get(exportplan.TOKEN_HEADER, "").strip().encode("utf-8", "surrogateescape")
        return bool(token) and hmac.compare_digest(token, given)

    def _route(self, path: str, query: dict[str, list[str]], *, head: bool) -> None:
        parts = path.split("/")
        if len(parts) == 4 and parts[2] == "manifests":
            self._manifest(parts[1], parts[3], head=head)
            return
        volume = self.served.volume(unquote(parts[2])) if len(parts) >= 4 and parts[1] == "volumes" else None
        if volume is None:
            self._text(404, "there is no such volume here")
            return
        if not volume.disk and parts[3] == "dir":
            self._directory(volume, "/".join(parts[4:]), head=head)
            return
        answer = self._answers(volume).get("/".join(parts[3:]))
        if answer is None:
            self._text(404, f"the volume {volume.name} is not served in this format")
            return
        try:
            answer(volume, query, head)
        except NoDisk as error:
            self._text(404, str(error))

    def _answers(self, volume: ExportVolume) -> dict[str, Callable[[ExportVolume, dict[str, list[str]], bool], None]]:
        if not volume.disk:
            return {exportplan.ARCHIVE: self._archive}
        return {exportplan.RAW: self._raw, exportplan.GZIP: self._gzip, exportplan.SUM: self._sum}

    # Disks

    def _raw(self, volume: ExportVolume, _query: dict[str, list[str]], head: bool) -> None:
        with open_disk(volume) as disk:
            self._ranged(disk, head=head)

    def _ranged(self, disk: Disk, *, head: bool) -> None:
        tag = f'"{disk.tag}"'
        asked = self.headers.get("Range", "")
        if self.headers.get("If-Range", tag) != tag:
            asked = ""
        try:
            start, end = wanted(asked, disk.size)
        except ValueError:
            self._text(416, f"the disk has {disk.size} bytes", {"Content-Range": f"bytes */{disk.size}"})
            return
        headers = {"Content-Length": str(end - start), "Accept-Ranges": "bytes", "ETag": tag}
        if asked:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{disk.size}"
        self._begin(206 if asked else 200, headers)
        if not head:
            for chunk in disk.read(start, end):
                self.wfile.write(chunk)

    def _gzip(self, volume: ExportVolume, query: dict[str, list[str]], head: bool) -> None:
        with open_disk(volume) as disk:
            text = query.get(exportplan.QUERY_FROM, ["0"])[0]
            start = int(text) if re.fullmatch(r"\d{1,18}", text) else -1
            if start < 0 or start % exportplan.PIECE or start > disk.size:
                self._text(416, f"from= must be a multiple of {exportplan.PIECE} within {disk.size}")
                return
            tag = f'"{disk.tag}"'
            if self.headers.get("If-Match", tag) != tag:
                self._text(412, "the disk has changed")
                return
            headers = {"Content-Type": "application/gzip", "ETag": tag, exportplan.SIZE_HEADER: str(disk.size)}
            self._stream(headers, packing.packed(disk, start), head=head)

    def _sum(self, volume: ExportVolume, _query: dict[str, list[str]], _head: bool) -> None:
        with open_disk(volume) as disk:
            tag, found = disk.tag, self.served.sums.get(volume, disk.tag)
        if found:
            self._text(200, f"{found}  {exportplan.RAW}\n", {"ETag": f'"{tag}"'})
        else:
            self._text(202, "the checksum is being computed", {"Retry-After": "1"})

    # Files

    def _archive(self, volume: ExportVolume, _query: dict[str, list[str]], head: bool) -> None:
        try:
            archive.check(volume.path)
        except archive.NotReadable as error:
            self._text(409, str(error))
            return
        stream = packing.pack(archive.packed(volume.path))
        self._stream({"Content-Type": "application/gzip"}, stream, head=head)

    def _directory(self, volume: ExportVolume, path: str, *, head: bool) -> None:
        try:
            fd = open_beneath(volume.path, unquote(path, errors="surrogateescape").strip("/") or ".", os.O_PATH)
        except (OSError, ValueError):
            self._text(404, "there is no such file, or it is a link")
            return
        try:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                self._listing(fd, path, head=head)
            else:
                self._file(volume, path, head=head)
        finally:
            os.close(fd)

    def _file(self, volume: ExportVolume, path: str, *, head: bool) -> None:
        try:
            opened = open_file(volume.path, unquote(path, errors="surrogateescape").strip("/"))
        except OSError as error:
            self._text(404, f"it cannot be read: {error.strerror}")
            return
        with Disk(opened) as file:
            self._ranged(file, head=head)

    def _listing(self, fd: int, path: str, *, head: bool) -> None:
        if path and not path.endswith("/"):
            # Relative: whoever passes it on has it at another place.
            self._text(301, "", {"Location": f"{path.rpartition('/')[2]}/"})
            return
        listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
        try:
            with os.scandir(listed) as entries:
                lines = sorted(_line(entry) for entry, _ in zip(entries, range(_MAX_LISTED)) if not entry.is_symlink())
        finally:
            os.close(listed)
        body = f"<!doctype html>\n<pre>\n{''.join(lines)}</pre>\n".encode("utf-8", "surrogateescape")
        self._begin(200, {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(body))})
        if not head:
            self.wfile.write(body)

    # Manifests

    def _manifest(self, whose: str, which: str, *, head: bool) -> None:
        if which == exportplan.MANIFEST_SECRET and whose in (exportplan.INTERNAL, exportplan.EXTERNAL):
            documents: list[Any] = [self._header_secret()]
        elif which == exportplan.MANIFEST_ALL and whose in (exportplan.INTERNAL, exportplan.EXTERNAL):
            found = self.served.manifests()
            documents = found.internal if whose == exportplan.INTERNAL else found.external
        else:
            documents = []
        if not documents:
            self._text(404, "there is no such manifest here")
            return
        # JSON is YAML, too.
        if "yaml" in self.headers.get("Accept", ""):
            kind, body = "application/yaml", b"---\n".join(_pretty(each) + b"\n" for each in documents)
        else:
            kind, body = "application/json", _pretty({"apiVersion": "v1", "kind": "List", "items": documents}) + b"\n"
        self._begin(200, {"Content-Type": kind, "Content-Length": str(len(body))})
        if not head:
            self.wfile.write(body)

    def _header_secret(self) -> dict[str, Any]:
        token = self.served.token().strip().decode("utf-8", "replace")
        plan = self.served.plan
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": exportplan.header_secret_name(plan.name)},
            "stringData": {"token": f"{exportplan.TOKEN_HEADER}:{token}"},
        }

    # How it is said

    def _begin(self, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        safe = {"Content-Type": _OCTETS, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
        # What strangers wrote to a disk is never shown as a page of ours.
        safe |= {"Content-Security-Policy": "default-src 'none'; sandbox", "Connection": "close"}
        for name, value in (safe | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def _stream(self, headers: dict[str, str], chunks: Iterable[bytes], *, head: bool) -> None:
        """The last chunk comes only when all of it went well: who does not see it has not got everything."""
        self._begin(200, headers | {"Transfer-Encoding": "chunked"})
        if head:
            return
        for chunk in _merged(chunks):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")

    def _text(self, code: int, text: str, headers: dict[str, str] | None = None) -> None:
        body = b"" if self.command == "HEAD" else text.encode("utf-8", "surrogateescape")
        kind = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))}
        self._begin(code, kind | (headers or {}))
        self.wfile.write(body)

    def log_request(self, code: object = "-", _size: object = "-") -> None:
        """Without the query: somebody may have put the token there."""
        path = self.path.partition("?")[0]
        if path != exportplan.PATH_READY:
            self.log_message("%s %s %s", self.command, quote(path), code)


def wanted(header: str, size: int) -> tuple[int, int]:
    """The one range that is asked for. Raises ValueError when it is not in the file."""
    if not header:
        return 0, size
    match = _RANGE.fullmatch(header.strip())
    if match is None or match[0] == "bytes=-" or max(len(match[1]), len(match[2])) > 18:
        raise ValueError(f"{header!r} is no range")
    if not match[1]:
        start, end = max(size - int(match[2]), 0), size
    else:
        start, end = int(match[1]), min(int(match[2]) + 1 if match[2] else size, size)
    if start >= end:
        raise ValueError(f"{header!r} is not within {size} bytes")
    return start, end


def _merged(chunks: Iterable[bytes], least: int = 1 << 16) -> Iterator[bytes]:
    """Small ones together: each costs a record."""
    waiting: list[bytes] = []
    length = 0
    for chunk in chunks:
        waiting.append(chunk)
        length += len(chunk)
        if length >= least:
            yield b"".join(waiting)
            waiting, length = [], 0
    if length:
        yield b"".join(waiting)


def _line(entry: os.DirEntry[str]) -> str:
    name = entry.name + ("/" if entry.is_dir(follow_symlinks=False) else "")
    shown = html.escape(os.fsencode(name).decode(errors="replace"))
    return f'<a href="./{quote(os.fsencode(name))}">{shown}</a>\n'


def _pretty(document: Any) -> bytes:
    return msgspec.json.format(encode(document), indent=2)
