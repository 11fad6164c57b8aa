"""The two programs that can build an image from a Dockerfile, behind the same few verbs.

docker needs a daemon, so a client on the PATH proves nothing: `docker info` decides. buildah needs none; it gets a
store of its own outside the checkout, so that it neither sees nor touches the user's images.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from problems import ImageError

BUILD_DEADLINE_S = 1800
PULL_DEADLINE_S = 300
QUICK_S = 60
#: Time of every file and image: the same input makes the same digest on any day, with any cache.
EPOCH = "0"


def call(command: list[str], deadline_s: int = QUICK_S, log: Path | None = None, **variables: str) -> str:
    """What the command printed. Raises ImageError with its last words."""
    environment = os.environ | variables
    try:
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            timeout=deadline_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ImageError(f"{command[0]} did not end within {deadline_s} s: {' '.join(command)}") from error
    if log is not None:
        log.write_text(done.stdout)
    if done.returncode != 0:
        last = "\n".join("  " + line for line in done.stdout.strip().splitlines()[-12:])
        where = f"\n(whole log: {log})" if log is not None else ""
        raise ImageError(f"`{' '.join(command[:4])} …` failed with code {done.returncode}:\n{last}{where}")
    return done.stdout


class Engine(Protocol):
    name: str

    def has(self, reference: str) -> bool: ...

    def pull(self, reference: str) -> None: ...

    def take_root(self, tar: Path, reference: str) -> None:
        """Makes an image of a root file system."""

    def build(self, request: Request, fresh: bool, log: Path) -> None: ...

    def export(self, reference: str, target: Path) -> None:
        """Writes an OCI archive that carries the reference."""


class Request:
    """One build: the Dockerfile, what it is called, and what the Dockerfile is told."""

    def __init__(
        self, root: Path, dockerfile: str, reference: str, arguments: Mapping[str, str], secrets: Mapping[str, Path]
    ) -> None:
        self.root, self.dockerfile, self.reference = root, dockerfile, reference
        self.arguments, self.secrets = arguments, secrets

    def words(self) -> list[str]:
        """The part of the command line that both programs understand."""
        words = ["-f", str(self.root / self.dockerfile), "-t", self.reference]
        for name, value in self.arguments.items():
            words += ["--build-arg", f"{name}={value}"]
        for name, path in self.secrets.items():
            words += ["--secret", f"id={name},src={path}"]
        return words


class Buildah:
    name = "buildah"

    def __init__(self, store: Path) -> None:
        store.mkdir(parents=True, exist_ok=True)
        self._command = ["buildah", "--root", str(store / "store"), "--runroot", str(store / "run")]
        self._steps = store / "steps"
        self._steps.mkdir(exist_ok=True)
        self._choose_driver()

    def _choose_driver(self) -> None:
        """Whole copies of every layer where the file system cannot stack them."""
        try:
            call([*self._command, "--storage-driver", "overlay", "info"])
            driver = "overlay"
        except ImageError:
            driver = "vfs"
        self._command += ["--storage-driver", driver]

    def has(self, reference: str) -> bool:
        try:
            call([*self._command, "inspect", "--type", "image", reference])
        except ImageError:
            return False
        return True

    def pull(self, reference: str) -> None:
        call([*self._command, "pull", "--quiet", reference], PULL_DEADLINE_S)

    def take_root(self, tar: Path, reference: str) -> None:
        container = call([*self._command, "from", "scratch"]).split()[-1]
        try:
            call([*self._command, "add", "--quiet", container, str(tar), "/"], PULL_DEADLINE_S)
            call([*self._command, "commit", "--quiet", container, f"localhost/{reference}"], PULL_DEADLINE_S)
        finally:
            call([*self._command, "rm", container])

    def build(self, request: Request, fresh: bool, log: Path) -> None:
        command = [*self._command, "build", "--layers", "--pull-never", "--timestamp", EPOCH, *request.words()]
        command += ["--no-cache"] if fresh else []
        output = call([*command, str(request.root)], BUILD_DEADLINE_S, log, BUILDAH_ISOLATION="chroot")
        self._forget_old_steps(request.dockerfile, output)

    def export(self, reference: str, target: Path) -> None:
        call([*self._command, "push", "--quiet", reference, f"oci-archive:{target}:{reference}"], PULL_DEADLINE_S)

    def _forget_old_steps(self, dockerfile: str, output: str) -> None:
        """Each step leaves an image for the next build to start from. Those that no build uses now would pile up."""
        file = self._steps / dockerfile.replace("/", "-")
        before = file.read_text().split() if file.exists() else []
        file.write_text("\n".join(step_images(output)))
        used = {name for other in self._steps.iterdir() for name in other.read_text().split()}
        for name in reversed([name for name in before if name not in used]):
            try:
                call([*self._command, "rmi", name])
            except ImageError:
                continue  # It is below something else; then it is no waste.


def step_images(output: str) -> list[str]:
    """Ids of the images that a build made or found, oldest first."""
    return [name[:11] for name in re.findall(r"^--> (?:Using cache )?([0-9a-f]{11,64})$", output, re.MULTILINE)]


class Docker:
    name = "docker"

    def has(self, reference: str) -> bool:
        try:
            call(["docker", "image", "inspect", reference])
        except ImageError:
            return False
        return True

    def pull(self, reference: str) -> None:
        call(["docker", "pull", "--quiet", reference], PULL_DEADLINE_S)

    def take_root(self, tar: Path, reference: str) -> None:
        call(["docker", "import", str(tar), reference], PULL_DEADLINE_S)

    def build(self, request: Request, fresh: bool, log: Path) -> None:
        # Secrets and mounts need BuildKit; docker passes a proxy on when it is named.
        proxies = [name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "no_proxy")]
        command = ["docker", "build", *request.words(), *(word for name in proxies for word in ("--build-arg", name))]
        command += ["--no-cache"] if fresh else []
        call([*command, str(request.root)], BUILD_DEADLINE_S, log, DOCKER_BUILDKIT="1", SOURCE_DATE_EPOCH=EPOCH)

    def export(self, reference: str, target: Path) -> None:
        """docker's own archives differ from version to version; skopeo makes one kind of them."""
        if shutil.which("skopeo") is None:
            raise ImageError("docker built the images, and skopeo, which writes them as OCI archives, is not installed")
        saved = target.with_suffix(".docker")
        try:
            call(["docker", "save", "-o", str(saved), reference], PULL_DEADLINE_S)
            archive = f"oci-archive:{target}:{reference}"
            call(["skopeo", "copy", "--quiet", f"docker-archive:{saved}", archive], PULL_DEADLINE_S)
        finally:
            saved.unlink(missing_ok=True)


def choose(store: Path, wanted: str = "") -> Engine:
    """docker if its daemon answers, else buildah; or the one that was asked for."""
    if wanted not in ("", "docker", "buildah"):
        raise ImageError(f"{wanted!r} is no program that builds images; use docker or buildah")
    if wanted != "buildah" and docker_answers():
        return Docker()
    if wanted == "docker":
        raise ImageError("docker's daemon does not answer (`docker info`)")
    if shutil.which("buildah") is None:
        raise ImageError(
            "nothing here builds images: no docker daemon answers, and buildah is not installed. "
            "On Debian: apt-get install buildah mmdebstrap"
        )
    return Buildah(store)


def docker_answers() -> bool:
    if shutil.which("docker") is None:
        return False
    try:
        call(["docker", "info", "--format", "{{.ServerVersion}}"], 10)
    except ImageError:
        return False
    return True
