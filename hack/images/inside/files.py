"""Copies chosen files of this Debian system into a tree of their own, with everything they need to run.

A final image starts from nothing, so it holds what is copied here and no more: the named files, the shared libraries
that they load, and for each Debian package of which a file was taken its record (for scanners that look for known
holes) and its licence. Runs in a build stage, as root.

Usage: files.py --to TREE [--below TREE]... [--bytecode FOLDER] [--without PATTERN]... PATTERN...

A pattern is an absolute path with shell wildcards; a directory means all that is in it. With --below, what that tree
already has is left out: it is a lower layer of the same image. With --bytecode, Python in that folder is
compiled and its source left out.
"""

from __future__ import annotations

import argparse
import fnmatch
import glob
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tree import compile_all, same_times

DPKG = Path("/var/lib/dpkg")
#: The merged /usr: packages and programs still use the old names.
OLD_NAMES = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


def real(path: str) -> str:
    """The path without symbolic links in its directories; the last part may still be one."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def expand(patterns: Iterable[str], without: list[str]) -> Iterator[str]:
    for pattern in patterns:
        found = glob.glob(pattern)
        if not found:
            sys.exit(f"error: nothing here is named {pattern}")
        for path in found:
            yield from (name for name in walk(path) if not any(fnmatch.fnmatch(name, other) for other in without))


def walk(path: str) -> Iterator[str]:
    if os.path.islink(path) or not os.path.isdir(path):
        yield path
        return
    for folder, _, files in os.walk(path):
        yield from (os.path.join(folder, name) for name in files)


def with_targets(paths: Iterable[str]) -> set[str]:
    """The paths, and where symbolic links among them lead."""
    result: set[str] = set()
    for path in paths:
        current = real(path)
        while current not in result:
            result.add(current)
            if os.path.islink(current):
                current = real(os.path.join(os.path.dirname(current), os.readlink(current)))
    return result


def is_program(path: str) -> bool:
    if os.path.islink(path) or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def libraries(programs: Iterable[str]) -> set[str]:
    """What the loader would map for these, however deep."""
    found: set[str] = set()
    for program in programs:
        done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
        if "not found" in done.stdout:
            sys.exit(f"error: {program} needs a library that is not installed:\n{done.stdout}")
        found.update(re.findall(r"(/\S+) \(0x", done.stdout))
    return found


def copy(path: str, tree: Path) -> None:
    target = tree / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, target, follow_symlinks=False)
    if not target.is_symlink():
        # Nothing in these images has a reason to run as somebody else.
        target.chmod(stat.S_IMODE(target.stat().st_mode) & ~(stat.S_ISUID | stat.S_ISGID))


def owners() -> dict[str, str]:
    """The package of each file, under its real path."""
    result = {}
    for listing in (DPKG / "info").glob("*.list"):
        package = listing.stem.partition(":")[0]
        for line in listing.read_text().splitlines():
            first, _, rest = line[1:].partition("/")
            result[f"/{OLD_NAMES.get(first, first)}/{rest}"] = package
    return result


def records() -> dict[str, str]:
    stanzas = (DPKG / "status").read_text().strip().split("\n\n")
    return {re.search(r"^Package: (\S+)", stanza, re.M)[1]: stanza for stanza in stanzas}  # type: ignore[index]


def take(paths: set[str], tree: Path, below: list[Path]) -> None:
    """Copies the paths and the records of their packages, but nothing that a tree below has."""
    new = {path for path in paths if not any(os.path.lexists(other / path.lstrip("/")) for other in below)}
    for path in sorted(new):
        copy(path, tree)
    belongs = owners()
    write_records({belongs[path] for path in new if path in belongs}, tree, below)


def checksums(packages: set[str]) -> dict[tuple[str, str], str]:
    """Of the .deb files, by name and version, out of the lists that apt checked against Debian's signature."""
    done = subprocess.run(["apt-cache", "show", *sorted(packages)], capture_output=True, text=True, check=False)
    found = {}
    for stanza in done.stdout.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|SHA256): (\S+)$", stanza, re.MULTILINE))
        if len(fields) == 3:
            found[fields["Package"], fields["Version"]] = fields["SHA256"]
    return found


def with_checksum(stanza: str, known: dict[tuple[str, str], str]) -> str:
    fields = dict(re.findall(r"^(Package|Version): (\S+)$", stanza, re.MULTILINE))
    digest = known.get((fields["Package"], fields["Version"]))
    return f"{stanza}\nSHA256: {digest}" if digest else stanza


def write_records(packages: set[str], tree: Path, below: list[Path]) -> None:
    known, digests = records(), checksums(packages)
    folder = tree / "var/lib/dpkg/status.d"
    folder.mkdir(parents=True, exist_ok=True)
    for package in sorted(packages):
        if any((other / "var/lib/dpkg/status.d" / package).exists() for other in below):
            continue
        # Lists of configuration files are dpkg's business, and there is no dpkg in the image.
        stanza = re.sub(r"\nConffiles:(\n .*)+", "", known[package])
        (folder / package).write_text(with_checksum(stanza, digests) + "\n")
        licence = f"/usr/share/doc/{package}/copyright"
        if os.path.exists(licence):
            target = tree / licence.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(licence, target)


def link_old_names(tree: Path) -> None:
    for name, place in OLD_NAMES.items():
        if not (tree / name).is_symlink():
            (tree / place).mkdir(parents=True, exist_ok=True)
            (tree / name).symlink_to(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--below", type=Path, action="append", default=[])
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("--bytecode", type=Path)
    parser.add_argument("patterns", nargs="+")
    args = parser.parse_args()
    chosen = with_targets(expand(args.patterns, args.without))
    chosen |= with_targets(libraries(sorted(filter(is_program, chosen))))
    take(chosen, args.to, args.below)
    if not args.below:
        link_old_names(args.to)
    if args.bytecode:
        compile_all(args.to, args.to / args.bytecode, sources=False)
    same_times(args.to)


if __name__ == "__main__":
    main()
