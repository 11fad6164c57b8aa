"""The base image from Debian packages, for machines that reach a Debian mirror and no registry."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from problems import ImageError

DEADLINE_S = 900


def release_of(base: str) -> str:
    """`debian:trixie-slim` → trixie."""
    name, _, tag = base.rpartition(":")
    if name.rpartition("/")[2] != "debian" or not tag:
        raise ImageError(f"the base image {base} cannot be pulled, and only debian:… can be made from packages")
    return tag.removesuffix("-slim")


def mirror() -> str:
    """Where this machine's own packages come from, e.g. `http://mirror.example`; $VIRTPOD_DEBIAN_MIRROR is another."""
    if named := os.environ.get("VIRTPOD_DEBIAN_MIRROR"):
        return named
    ask = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    done = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=False)
    found = first_mirror(done.stdout)
    if not found:
        raise ImageError("apt knows no Debian mirror from which a base image could be made: set VIRTPOD_DEBIAN_MIRROR")
    return found


def first_mirror(uris: str) -> str:
    """From apt's list: the place that has both the release and its security updates below it."""
    roots = (uri.strip().rstrip("/") for uri in uris.splitlines())
    return next((uri.removesuffix("/debian") for uri in roots if uri.endswith("/debian")), "")


def sources(release: str, site: str) -> list[str]:
    return [
        f"deb {site}/debian {release} main",
        f"deb {site}/debian {release}-updates main",
        f"deb {site}/debian-security {release}-security main",
    ]


def make_root(base: str, apt_lines: list[str], target: Path, log: Path) -> None:
    """Writes the root file system as a tar file."""
    if shutil.which("mmdebstrap") is None:
        raise ImageError(
            f"the base image {base} cannot be pulled, and mmdebstrap, which would make it from Debian packages, "
            "is not installed: apt-get install mmdebstrap"
        )
    release = release_of(base)
    command = ["mmdebstrap", "--variant=apt", "--format=tar", *(f"--aptopt={line}" for line in apt_lines)]
    # The way to the mirror is this machine's, not the image's.
    command += ['--customize-hook=rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"', release, str(target)]
    command += sources(release, mirror())
    with log.open("w") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=DEADLINE_S, check=False)
    if done.returncode != 0:
        why = " / ".join(log.read_text(errors="replace").strip().splitlines()[-4:])
        raise ImageError(
            f"the base image {base} can neither be pulled nor made from Debian packages: {why} (log: {log})"
        )
