"""Makes a folder of installed Python packages small and quick to start.

Takes out what no program reads at run time, strips symbols from extension modules and compiles everything to bytecode
that is never compared with its source again. Runs in a build stage.

Usage: wheels.py --to TREE [--below TREE]... [--without PATTERN]... FOLDER

FOLDER is what `pip install --target` filled; it ends up as the site folder of the image's Python. Libraries that its
modules load come along, unless a tree below has them.
"""

from __future__ import annotations

import argparse
import fnmatch
import shutil
import subprocess
from pathlib import Path

from files import libraries, take, with_targets
from tree import SITE, compile_all, same_times

#: Tests, type stubs, sources of extension modules, command lines of libraries, installers' notes.
NEVER_READ = (
    "*/tests/*", "*/test/*", "*/testing/*", "bin/*", "*.pyi", "*.pyx", "*.pxd", "*.pxi", "*.c", "*.h", "*.cpp",
    "*.hash", "*/py.typed", "*.dist-info/RECORD", "*.dist-info/INSTALLER", "*.dist-info/REQUESTED",
    "*.dist-info/direct_url.json", "*.dist-info/sboms/*", "*/__pycache__/*", "*.proto",
)  # fmt: skip


def prune(folder: Path, patterns: tuple[str, ...]) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        name = str(path.relative_to(folder))
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            path.unlink()


def strip(folder: Path) -> None:
    """Also of the build id: it depends on the temporary folder in which pip compiled."""
    modules = [str(path) for path in folder.rglob("*.so*") if path.is_file()]
    if modules:
        subprocess.run(["strip", "--strip-unneeded", "--remove-section=.note.gnu.build-id", *modules], check=True)


def needed(folder: Path) -> set[str]:
    """Libraries of the system that extension modules load; what a package brings along does not count."""
    modules = [str(path) for path in folder.rglob("*.so*") if path.is_file()]
    return {path for path in with_targets(libraries(modules)) if not Path(path).is_relative_to(folder)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--below", type=Path, action="append", default=[])
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    prune(args.folder, (*NEVER_READ, *args.without))
    strip(args.folder)
    take(needed(args.folder), args.to, args.below)
    site = args.to / SITE
    site.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(args.folder, site, symlinks=True)
    compile_all(args.to, site)
    same_times(args.to)


if __name__ == "__main__":
    main()
