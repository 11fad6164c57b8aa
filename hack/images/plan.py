"""The four images, and what each is made from. What goes in is read from its Dockerfile, so that is said only once."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from problems import ImageError

REGISTRY = "virtpod.internal"
#: Paths that decide how the build goes, beside what a Dockerfile copies.
COMMON = (".dockerignore",)
_COPY = re.compile(r"^COPY (?!--from)(.+) \S+$", re.MULTILINE)
_BASE = re.compile(r"^ARG BASE=(\S+)$", re.MULTILINE)
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Image:
    component: str
    #: The image's name in the chart's values.
    key: str

    @property
    def name(self) -> str:
        return f"virt-{self.component}"

    @property
    def repository(self) -> str:
        return f"{REGISTRY}/{self.name}"

    @property
    def dockerfile(self) -> str:
        return f"{self.component}/Dockerfile"


IMAGES = (
    Image("api", "virtApi"),
    Image("controller", "virtController"),
    Image("handler", "virtHandler"),
    Image("launcher", "virtLauncher"),
)


class Checkout:
    """What the working tree says about the images."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def version(self) -> str:
        found = _VERSION.search((self.root / "core/virt_core/__init__.py").read_text())
        if found is None:
            raise ImageError("core/virt_core/__init__.py names no __version__")
        return str(found[1])

    def base(self) -> str:
        """The one image that all Dockerfiles start from."""
        named = {image.dockerfile: _BASE.findall((self.root / image.dockerfile).read_text()) for image in IMAGES}
        bases = {base for found in named.values() for base in found}
        if len(bases) != 1 or not all(named.values()):
            raise ImageError(f"the Dockerfiles do not agree on one `ARG BASE=…`: {named}")
        return str(bases.pop())

    def inputs(self, image: Image) -> list[str]:
        text = (self.root / image.dockerfile).read_text()
        copied = {word for line in _COPY.findall(text) for word in line.split()}
        return sorted({image.dockerfile, *COMMON, *copied})

    def digest(self, image: Image, *more: str) -> str:
        """Of every byte that can change the image; `more` are facts that are no files."""
        digest = hashlib.sha256("\0".join(more).encode())
        for path in self._files(image):
            digest.update(f"\0{path.relative_to(self.root)}\0".encode() + path.read_bytes())
        return digest.hexdigest()

    def _files(self, image: Image) -> Iterator[Path]:
        for name in self.inputs(image):
            path = self.root / name
            if not path.exists():
                raise ImageError(f"{image.dockerfile} copies {name}, which does not exist")
            found = sorted(path.rglob("*")) if path.is_dir() else [path]
            yield from (p for p in found if p.is_file() and not self._ignored(p))

    def _ignored(self, path: Path) -> bool:
        """As .dockerignore says, of which only plain paths and __pycache__ are understood here."""
        lines = (self.root / ".dockerignore").read_text().split()
        plain = [self.root / line for line in lines if line[0] not in "!*#"]
        return "__pycache__" in path.parts or any(path.is_relative_to(other) for other in plain)

    def revision(self, image: Image) -> tuple[str, str]:
        """The last commit that changed the image, and its time: other commits leave the image as it is."""
        inputs = self.inputs(image)
        last = self._git("log", "-1", "--format=%H %cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--", *inputs)
        if not last:
            return "unknown", "1970-01-01T00:00:00Z"
        commit, _, created = last.partition(" ")
        return commit + ("-dirty" if self._git("status", "--porcelain", "--", *inputs) else ""), created

    def source(self) -> str:
        """Where the code is, without anything that logs in there; nothing if it is only on this machine."""
        url = self._git("remote", "get-url", "origin")
        return re.sub(r"^(https?://)[^/@]*@", r"\1", url) if re.match(r"https?://|ssh://|git@", url) else "unknown"

    def _git(self, *words: str) -> str:
        command = ["git", "-C", str(self.root), *words]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
                env={"TZ": "UTC", "PATH": "/usr/bin:/bin"},
            )
        except FileNotFoundError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""
