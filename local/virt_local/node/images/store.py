"""The image store: one OCI layout that all nodes of a machine share, and the unpacked content beside it.

Several processes use it at once (nodes, the command line), so every change happens under a file lock and by rename.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from virt_core.apis.base import decode, encode
from virt_local.node.images.layout import (
    INDEX_TYPES,
    REF_NAME,
    Descriptor,
    Image,
    ImageError,
    Index,
    blob_path,
    choose,
    load_image,
    read_document,
    read_index,
)
from virt_local.node.images.reference import InvalidReference, normalize
from virt_local.node.images.unpack import unpack
from virt_local.node.layout import remove_tree, shared_directory, write_atomic

_CHUNK = 1 << 20
_ORIGIN = "io.virtpod.image.origin"
IMPORTED, PULLED = "import", "pull"
_LOCK_DEADLINE_S = 600.0
_LOCK_POLL_S = 0.02


@dataclass(frozen=True)
class Entry:
    """A line of `virt-local image list`."""

    reference: str
    digest: str
    size: int


class ImageStore:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._cache: dict[str, Image] = {}
        self._cached_at: tuple[int, int] = (0, 0)
        self._mutex = threading.Lock()

    def find(self, reference: str) -> Image | None:
        """The image of that name, if it is in the store. Raises ImageError when it is there but broken."""
        name = _name(reference)
        with self._mutex:
            self._forget_if_changed()
            if name in self._cache:
                return self._cache[name]
            descriptor = self._descriptors().get(name)
            if descriptor is None:
                return None
            self._cache[name] = load_image(self.root, descriptor, name)
            return self._cache[name]

    def entries(self) -> list[Entry]:
        found = []
        for name, descriptor in sorted(self._descriptors().items()):
            found.append(Entry(name, descriptor.digest, load_image(self.root, descriptor, name).size))
        return found

    def is_imported(self, name: str) -> bool:
        """Brought by hand: then no registry knows better."""
        descriptor = self._descriptors().get(_name(name))
        return descriptor is not None and descriptor.annotations.get(_ORIGIN) == IMPORTED

    def import_layout(self, layout: Path, name: str, tag: str = "", *, origin: str = IMPORTED) -> Image:
        """Takes an image from another layout. `tag` chooses one of several by its ref.name."""
        reference = _name(name)
        descriptor = _pick(layout, tag)
        image = load_image(layout, descriptor, reference)
        (self.root / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)
        for blob in (image.manifest.config, *image.manifest.layers):
            self._take(layout, blob.digest)
        flat = _flatten(layout, descriptor, reference)
        flat.annotations = {_ORIGIN: origin}
        self._take(layout, flat.digest)
        with self._lock():
            self._write_index(reference, flat)
        return load_image(self.root, flat, reference)

    def remove(self, name: str) -> bool:
        """Forgets a name. Blobs stay until `collect`; unpacked content stays while a Pod may use it."""
        with self._lock():
            descriptors = self._descriptors()
            if descriptors.pop(_name(name), None) is None:
                return False
            self._save(descriptors)
        return True

    def rootfs(self, image: Image) -> Path:
        """The unpacked content of an image; unpacks it on first use."""
        target = self.root / "rootfs" / image.chain
        if target.is_dir():
            return target
        with self._lock(f"unpack-{image.chain}"):
            if not target.is_dir():
                self._unpack(image, target)
        return target

    def _unpack(self, image: Image, target: Path) -> None:
        partial = target.with_name(f".{image.chain}.partial")
        remove_tree(partial)
        shared_directory(partial)
        try:
            unpack(self.root, image, partial)
        except ImageError:
            remove_tree(partial)
            raise
        os.rename(partial, target)

    def _take(self, layout: Path, digest: str) -> None:
        """Copies a blob and checks it on the way."""
        source, target = blob_path(layout, digest), blob_path(self.root, digest)
        if target.exists():
            return
        temporary = target.with_name(f".{uuid.uuid4().hex}")
        seen = hashlib.sha256()
        try:
            with source.open("rb") as reader, temporary.open("xb") as writer:
                while chunk := reader.read(_CHUNK):
                    seen.update(chunk)
                    writer.write(chunk)
            if seen.hexdigest() != target.name:
                raise ImageError(f"the blob {digest} does not have the content that its name says")
            os.rename(temporary, target)
        except OSError as err:
            raise ImageError(f"cannot copy the blob {digest}: {err}") from err
        finally:
            temporary.unlink(missing_ok=True)

    def _write_index(self, reference: str, descriptor: Descriptor) -> None:
        descriptors = self._descriptors()
        descriptors[reference] = descriptor
        self._save(descriptors)

    def _save(self, descriptors: dict[str, Descriptor]) -> None:
        manifests = [
            Descriptor(digest=d.digest, media_type=d.media_type, size=d.size, annotations=_own(d) | {REF_NAME: name})
            for name, d in descriptors.items()
        ]
        write_atomic(self.root / "oci-layout", b'{"imageLayoutVersion":"1.0.0"}', 0o644)
        write_atomic(self.root / "index.json", encode({"schemaVersion": 2, "manifests": manifests}), 0o644)

    def _descriptors(self) -> dict[str, Descriptor]:
        if not (self.root / "index.json").exists():
            return {}
        return {d.annotations.get(REF_NAME, ""): d for d in read_index(self.root).manifests}

    def _forget_if_changed(self) -> None:
        try:
            status = (self.root / "index.json").stat()
        except FileNotFoundError:
            self._cache.clear()
            return
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._cached_at:
            self._cache.clear()
            self._cached_at = stamp

    @contextmanager
    def _lock(self, name: str = "index") -> Iterator[None]:
        locks = self.root / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / name).open("w") as stream:
            _flock(stream.fileno(), f"the image store ({name})")
            yield


def _flock(fd: int, what: str) -> None:
    deadline = time.monotonic() + _LOCK_DEADLINE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ImageError(f"{what} has been locked by another process for {_LOCK_DEADLINE_S:.0f} s") from None
            time.sleep(_LOCK_POLL_S)


def _name(reference: str) -> str:
    try:
        return normalize(reference)
    except InvalidReference as err:
        raise ImageError(str(err)) from err


def _own(descriptor: Descriptor) -> dict[str, str]:
    return {key: value for key, value in descriptor.annotations.items() if key == _ORIGIN}


def _pick(layout: Path, tag: str) -> Descriptor:
    manifests: list[Descriptor] = read_index(layout).manifests
    if tag:
        manifests = [d for d in manifests if d.annotations.get(REF_NAME) == tag]
    if not manifests:
        raise ImageError(f"{layout} holds no image" + (f" named {tag!r}" if tag else ""))
    return choose(manifests, str(layout))


def _flatten(layout: Path, descriptor: Descriptor, reference: str) -> Descriptor:
    """The descriptor of the manifest itself: an index of platforms is not kept, its other images are not here."""
    while descriptor.media_type in INDEX_TYPES:
        descriptor = choose(decode(read_document(layout, descriptor.digest), Index).manifests, reference)
    return descriptor
