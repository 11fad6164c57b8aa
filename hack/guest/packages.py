"""Fetches Debian packages with apt and unpacks them in a directory of our own: nothing is installed on the host."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# What the guest is made of. Libraries follow from the dependencies.
KERNEL = "linux-image-cloud-amd64"
PROGRAMS = ("busybox-static", "dropbear-bin", "qemu-guest-agent", "wide-dhcpv6-client")
# Of these only programs are taken that need nothing but libc, so what else they depend on stays away.
SINGLE_PROGRAMS = ("openssh-sftp-server", "openssh-client", "inetutils-inetd")


class BuildError(Exception):
    """A sentence for the person who runs the build."""


@dataclass(frozen=True)
class Package:
    """One line of `apt-get download --print-uris`: enough to know whether an earlier build is still good."""

    file: str
    size: int
    checksum: str


def run(*command: str, cwd: Path | None = None) -> str:
    # The epoch fixes the times that mtools writes, so that two builds give the same bytes.
    environment = {**os.environ, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "315532800"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-800:]}")
    return done.stdout


def dependencies(*packages: str) -> list[str]:
    """The first alternative of each dependency. One call for many packages: apt reads its lists anew each time."""
    shown = run("apt-cache", "show", "--no-all-versions", *packages)
    fields = re.findall(r"^(?:Pre-)?Depends: (.*)$", shown, flags=re.MULTILINE)
    return [part.split("|")[0].split("(")[0].split(":")[0].strip() for field in fields for part in field.split(",")]


def libraries_of(packages: tuple[str, ...]) -> list[str]:
    """Library packages that the programs need, and those that the libraries need."""
    found: list[str] = []
    layer = list(packages)
    while layer:
        names = dict.fromkeys(dependencies(*layer))
        layer = [name for name in names if _is_library(name) and name not in found]
        found += layer
    return found


def _is_library(name: str) -> bool:
    return name.startswith(("lib", "zlib")) and not name.endswith("-perl")


def kernel_package() -> str:
    for name in dependencies(KERNEL):
        if name.startswith("linux-image-"):
            return name
    raise BuildError(f"apt knows no kernel behind {KERNEL}: run `apt-get update` and try again")


def resolve() -> tuple[list[str], list[Package]]:
    """Package names to fetch, and what apt would fetch for them."""
    names = [kernel_package(), *PROGRAMS, *SINGLE_PROGRAMS, *libraries_of(PROGRAMS)]
    # The lines look like: 'http://…/x.deb' x_1.0_amd64.deb 12345 SHA256:…
    lines = re.findall(r"^'[^']*' (\S+) (\d+) (\S*)$", run("apt-get", "download", "--print-uris", *names), re.MULTILINE)
    if len(lines) < len(names):
        raise BuildError("apt cannot find some of: " + " ".join(names) + ". Run `apt-get update` and try again")
    return names, [Package(file, int(size), checksum) for file, size, checksum in lines]


def fetch(names: list[str], packages: list[Package], cache: Path) -> list[Path]:
    """Downloads what is not in the cache yet."""
    cache.mkdir(parents=True, exist_ok=True)
    files = [cache / package.file for package in packages]
    if not all(file.is_file() and file.stat().st_size == package.size for file, package in zip(files, packages)):
        run("apt-get", "download", "-o", "APT::Sandbox::User=root", *names, cwd=cache)
    return files


def unpack(files: list[Path], target: Path) -> None:
    """Into a tree whose /bin, /lib and the like are links into /usr: only older releases have files there."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (target / "usr" / name).mkdir(parents=True)
        (target / name).symlink_to(f"usr/{name}")
    script = 'dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink -C "$2"'
    for file in files:
        run("sh", "-c", script, "sh", str(file), str(target))
