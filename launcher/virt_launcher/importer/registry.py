"""A disk out of a container image, straight from its registry: the layers are read as streams, nothing is stored.

The disk is the one file in the directory /disk of the image. The manifest and each layer are checked against the digest
by which they were asked for.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import platform
import re
import tarfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from virt_core.apis import importplan
from virt_core.runtime.record import record
from virt_launcher.importer import packing
from virt_launcher.importer.errors import Refused, Trouble
from virt_launcher.importer.http import Access, Client
from virt_launcher.importer.progress import Meter
from virt_launcher.importer.target import CHUNK

_MAX_DOCUMENT = 4 << 20
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "s390x": "s390x"}
_HUB, _HUB_HOST = "docker.io", "registry-1.docker.io"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@record(frozen=True, slots=True)
class Reference:
    host: str
    name: str
    #: A tag or a digest.
    version: str


def parse(url: str) -> Reference:
    """Of `docker://host/name:tag`, as people write it."""
    found = re.fullmatch(r"docker://([^/@\s]+/)?([a-z0-9._/-]+)(?::([\w.-]{1,128}))?(?:@(sha256:[0-9a-f]{64}))?", url)
    if found is None:
        raise Refused(importplan.INVALID, f"{url!r} is no reference of an image, such as docker://host/name:tag")
    host, name = (found[1] or "").rstrip("/"), found[2]
    if not host or not ("." in host or ":" in host or host == "localhost"):
        host, name = _HUB, f"{host}/{name}" if host else name
    if host == _HUB:
        host, name = _HUB_HOST, name if "/" in name else f"library/{name}"
    return Reference(host, name, found[4] or found[3] or "latest")


class Registry:
    def __init__(self, reference: Reference, access: Access, meter: Meter) -> None:
        self._reference, self._meter = reference, meter
        self._basic = dict(access.secret).get("Authorization", "")
        self._client = Client(Access(trust=access.trust))
        self._root = f"https://{reference.host}/v2/{reference.name}"
        self._authorization = ""

    def disk(self, limit: int) -> Iterator[bytes]:
        """The bytes of its file. `limit`: more than this is unpacked of no layer. Raises Refused, Trouble."""
        try:
            layers = self._layers()
            for layer in layers:
                found = False
                for piece in self._file_of(layer, limit):
                    found = True
                    yield piece
                if found:
                    return
        except (OSError, http.client.HTTPException) as error:
            raise Trouble(f"{self._root} broke off: {error or type(error).__name__}") from error
        raise Refused(importplan.NOT_FOUND, "the image has no file in its directory /disk")

    # Documents

    def _layers(self) -> list[dict[str, Any]]:
        manifest = self._manifest(self._reference.version)
        if "manifests" in manifest:
            manifest = self._manifest(self._chosen(manifest["manifests"]))
        layers = manifest.get("layers")
        good = isinstance(layers, list) and all(_DIGEST.fullmatch(str(each.get("digest"))) for each in layers)
        if not good or not isinstance(layers, list):
            raise Refused(importplan.INVALID, "the manifest of the image names no layers")
        return layers

    def _chosen(self, entries: list[dict[str, Any]]) -> str:
        own = _ARCHITECTURES.get(platform.machine(), platform.machine())
        for entry in entries:
            about = entry.get("platform") or {}
            if about.get("architecture") == own and about.get("os") in ("linux", None):
                return str(entry.get("digest"))
        raise Refused(importplan.NOT_FOUND, f"the image has nothing for {own}")

    def _manifest(self, version: str) -> dict[str, Any]:
        connection, response = self._get(f"{self._root}/manifests/{version}", {"Accept": ", ".join(_MANIFESTS)})
        try:
            body = response.read(_MAX_DOCUMENT)
        finally:
            connection.close()
        if _DIGEST.fullmatch(version) and f"sha256:{hashlib.sha256(body).hexdigest()}" != version:
            raise Refused(importplan.CHECKSUM, f"the manifest {version} has another digest")
        try:
            found = json.loads(body)
        except ValueError as error:
            raise Refused(importplan.INVALID, "the manifest of the image is no JSON") from error
        return found if isinstance(found, dict) else {}

    def _get(self, url: str, headers: dict[str, str]) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        for _ in range(2):
            given = {"Authorization": self._authorization} if self._authorization else {}
            connection, response = self._client.ask(url, headers, secret=given, also=frozenset({401}))
            if response.status != 401:
                return connection, response
            challenge = response.headers.get("WWW-Authenticate", "")
            connection.close()
            self._authorization = self._answer(challenge)
        raise Refused(importplan.DENIED, f"{url} answered 401 {response.reason}")

    def _answer(self, challenge: str) -> str:
        """What the registry wants to be shown."""
        if challenge.lower().startswith("basic") and self._basic:
            return self._basic
        realm = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        if not challenge.lower().startswith("bearer") or not realm.get("realm"):
            raise Refused(importplan.DENIED, f"{self._reference.host} wants credentials")
        scope = realm.get("scope") or f"repository:{self._reference.name}:pull"
        query = urlencode({"service": realm.get("service", ""), "scope": scope})
        given = {"Authorization": self._basic} if self._basic else {}
        connection, response = self._client.ask(f"{realm['realm']}?{query}", {}, secret=given)
        try:
            answer = json.loads(response.read(_MAX_DOCUMENT))
        except ValueError as error:
            raise Refused(importplan.DENIED, f"{self._reference.host} gave no token") from error
        finally:
            connection.close()
        return f"Bearer {answer.get('token') or answer.get('access_token') or ''}"

    # Layers

    def _file_of(self, layer: dict[str, Any], limit: int) -> Iterator[bytes]:
        reader: Any = _Reader(self._unpacked(layer), limit)
        found = False
        try:
            with tarfile.open(fileobj=reader, mode="r|") as archive:
                for member in archive:
                    if not member.isreg() or not re.fullmatch(r"(\./|/)?disk/[^/]+", member.name):
                        continue
                    if found:
                        raise Refused(importplan.INVALID, "the image has several files in its directory /disk")
                    found, self._meter.length = True, member.size
                    yield from _pieces(archive, member)
        except tarfile.TarError as error:
            raise Refused(importplan.REFUSED, f"a layer of the image is no tar: {error}") from error
        while reader.read(CHUNK):
            pass  # The digest is that of all of it.

    def _unpacked(self, layer: dict[str, Any]) -> Iterator[bytes]:
        chunks = self._blob(str(layer["digest"]))
        first = next(chunks, b"")
        whole = _chained(first, chunks)
        kind = packing.kind_of(first)
        return packing.unpacked(whole, kind) if kind else whole

    def _blob(self, digest: str) -> Iterator[bytes]:
        connection, response = self._get(f"{self._root}/blobs/{digest}", {})
        seen = hashlib.sha256()
        try:
            while data := response.read(CHUNK):
                seen.update(data)
                yield data
            if response.length:
                raise http.client.IncompleteRead(b"", response.length)
        finally:
            connection.close()
        if f"sha256:{seen.hexdigest()}" != digest:
            raise Refused(importplan.CHECKSUM, f"the layer {digest} has another digest")


def _pieces(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    file = archive.extractfile(member)
    while file is not None and (data := file.read(CHUNK)):
        yield data


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


class _Reader:
    """An iterator of bytes as a file that can only be read on."""

    def __init__(self, chunks: Iterator[bytes], limit: int) -> None:
        self._chunks, self._left = chunks, limit
        self._rest = b""

    def read(self, size: int) -> bytes:
        parts, have = [self._rest], len(self._rest)
        while have < size and (chunk := next(self._chunks, b"")):
            parts.append(chunk)
            have += len(chunk)
        data = b"".join(parts)
        self._rest = data[size:]
        self._left -= len(data[:size])
        if self._left < 0:
            raise Refused(importplan.REFUSED, "a layer of the image holds more than any disk for this claim needs")
        return data[:size]
