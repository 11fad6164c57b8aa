"""Reads an OCI image layout: index, manifest, config. Every blob is checked against the digest that names it."""

from __future__ import annotations

import hashlib
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from msgspec import MsgspecError, field

from virt_core.apis.base import Struct, decode

INDEX_TYPES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
REF_NAME = "org.opencontainers.image.ref.name"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MAX_DOCUMENT = 8 << 20
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class ImageError(RuntimeError):
    """An image that cannot be used, and why."""


class Platform(Struct):
    architecture: str = ""
    os: str = ""


class Descriptor(Struct):
    digest: str
    media_type: str = ""
    size: int = 0
    annotations: dict[str, str] = {}
    platform: Platform | None = None


class Index(Struct):
    schema_version: int = 2
    media_type: str = ""
    manifests: list[Descriptor] = []


class Manifest(Struct):
    config: Descriptor
    schema_version: int = 2
    media_type: str = ""
    layers: list[Descriptor] = []


class RunConfig(Struct):
    """How an image wants to be run. The names on the wire are Docker's."""

    user: str = field(default="", name="User")
    env: list[str] | None = field(default=None, name="Env")
    entrypoint: list[str] | None = field(default=None, name="Entrypoint")
    cmd: list[str] | None = field(default=None, name="Cmd")
    working_dir: str = field(default="", name="WorkingDir")
    stop_signal: str = field(default="", name="StopSignal")


class RootFS(Struct):
    diff_ids: list[str] = field(default_factory=list, name="diff_ids")


class ImageConfig(Struct):
    architecture: str = ""
    config: RunConfig = field(default_factory=RunConfig)
    rootfs: RootFS = field(default_factory=RootFS)


@dataclass(frozen=True)
class Image:
    """One image for this machine."""

    reference: str
    digest: str
    manifest: Manifest
    config: ImageConfig

    @property
    def chain(self) -> str:
        """Names the unpacked content: images with the same layers share it."""
        return hashlib.sha256("\n".join(self.config.rootfs.diff_ids).encode()).hexdigest()

    @property
    def size(self) -> int:
        return sum(layer.size for layer in self.manifest.layers)


def machine() -> str:
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def blob_path(root: Path, digest: str) -> Path:
    """The digest comes from a file that may be hostile, so its form is checked before it becomes a path."""
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise ImageError(f"{digest!r} is not a sha256 digest")
    return root / "blobs" / "sha256" / match.group(1)


def read_document(root: Path, digest: str) -> bytes:
    path = blob_path(root, digest)
    try:
        if path.stat().st_size > _MAX_DOCUMENT:
            raise ImageError(f"{digest} is too large for a manifest")
        data = path.read_bytes()
    except OSError as err:
        raise ImageError(f"the layout lacks the blob {digest}: {err.strerror}") from err
    if hashlib.sha256(data).hexdigest() != path.name:
        raise ImageError(f"the blob {digest} does not have the content that its name says")
    return data


def read_index(root: Path) -> Index:
    try:
        return decode((root / "index.json").read_bytes(), Index)
    except OSError as err:
        raise ImageError(f"{root} is not an OCI image layout: index.json: {err.strerror}") from err
    except MsgspecError as err:
        raise ImageError(f"{root}/index.json: {err}") from err


def load_image(root: Path, descriptor: Descriptor, reference: str) -> Image:
    """Follows a descriptor, through an index of platforms if it is one, to the image for this machine."""
    try:
        data = read_document(root, descriptor.digest)
        if descriptor.media_type in INDEX_TYPES:
            return load_image(root, choose(decode(data, Index).manifests, reference), reference)
        manifest = decode(data, Manifest)
        config = decode(read_document(root, manifest.config.digest), ImageConfig)
    except MsgspecError as err:
        raise ImageError(f"{reference}: {err}") from err
    if len(manifest.layers) != len(config.rootfs.diff_ids):
        raise ImageError(f"{reference}: {len(manifest.layers)} layers but {len(config.rootfs.diff_ids)} diff_ids")
    return Image(reference, descriptor.digest, manifest, config)


def choose(manifests: list[Descriptor], name: str) -> Descriptor:
    """The only manifest, or the one for this architecture."""
    if len(manifests) == 1:
        return manifests[0]
    wanted = machine()
    for descriptor in manifests:
        found = descriptor.platform
        if found is not None and found.architecture == wanted and found.os in ("", "linux"):
            return descriptor
    raise ImageError(f"{name} has no image for linux/{wanted}")
