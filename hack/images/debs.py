"""Which Debian packages are in the images: versions and the hash of each package, held against a list in the checkout.

apt takes only what Debian signed, so a version cannot hide other content; the hash of a version that we know is held
against the list all the same. A newer version is news and no failure: Debian publishes fixes on its own days, and an
image that could not be built on those days would be the one without the fix. `--locked` makes it a failure.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import archive
from problems import ImageError

#: Where the build stages leave a record for each package of which they took a file.
RECORDS = "var/lib/dpkg/status.d/"
_HEAD = "# Made by `make images-lock`: the Debian packages of which files are in the images. Do not edit."
_LINE = re.compile(r"(?P<name>\S+)=(?P<version>\S+) sha256:(?P<sha256>[0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Deb:
    name: str
    version: str
    #: Of the .deb file, as the signed list of the archive has it; empty when the archive no longer lists the version.
    sha256: str


@dataclass(frozen=True, slots=True)
class Difference:
    text: str
    #: The same version with other content: somebody lies.
    forged: bool = False


def lock_path(checkout: Path, architecture: str) -> Path:
    return checkout / "hack/images/locks" / f"debian-{architecture}.txt"


def of_image(path: Path) -> dict[str, Deb]:
    """As the image itself tells."""
    found: dict[str, Deb] = {}
    with tarfile.open(path) as tar:
        for layer in archive.read(path).layers:
            with archive.open_layer(tar, layer.digest) as files:
                for member in files:
                    if member.isfile() and member.name.removeprefix("./").startswith(RECORDS):
                        deb = of_record(cast("IO[bytes]", files.extractfile(member)).read().decode())
                        found[deb.name] = deb
    return found


def of_record(stanza: str) -> Deb:
    fields = dict(re.findall(r"^(Package|Version|SHA256): (\S+)$", stanza, re.MULTILINE))
    return Deb(fields["Package"], fields["Version"], fields.get("SHA256", ""))


def render(debs: Iterable[Deb]) -> str:
    lines = sorted(f"{deb.name}={deb.version} sha256:{deb.sha256}" for deb in debs)
    return "\n".join([_HEAD, *lines]) + "\n"


def parse(text: str) -> dict[str, Deb]:
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            match = _LINE.fullmatch(line)
            if match is None:
                raise ImageError(
                    f"a list of Debian packages has the line {line!r}: write it anew with make images-lock"
                )
            found[match["name"]] = Deb(**match.groupdict())
    return found


def differences(found: Mapping[str, Deb], locked: Mapping[str, Deb]) -> list[Difference]:
    return [difference for name in sorted(found) if (difference := _compare(found[name], locked.get(name)))]


def _compare(deb: Deb, locked: Deb | None) -> Difference | None:
    if locked is None:
        return Difference(f"{deb.name} {deb.version} is new")
    if deb.version != locked.version:
        return Difference(f"{deb.name} {locked.version} → {deb.version}")
    if not deb.sha256:
        return Difference(f"{deb.name} {deb.version}: the archive no longer lists it, so its content is not known")
    if deb.sha256 != locked.sha256:
        return Difference(f"{deb.name} {deb.version} has other content than the list says", forged=True)
    return None


def judge(found: list[Difference], *, locked: bool) -> str:
    """What to say about them; nothing when all is as listed. Raises ImageError when it must not go on."""
    if not found:
        return ""
    listed = "; ".join(difference.text for difference in found)
    if any(difference.forged for difference in found):
        raise ImageError(f"a mirror or a base image is not what it says: {listed}")
    if locked:
        raise ImageError(f"the Debian packages are not those of the list, and --locked was given: {listed}")
    return f"Debian has moved on ({listed}); `make images-lock` writes the new list"
