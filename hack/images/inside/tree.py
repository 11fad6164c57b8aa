"""What all trees of an image have in common: where Python packages are, bytecode, and the time of every file."""

from __future__ import annotations

import compileall
import os
import py_compile
import sys
from pathlib import Path

#: The one Python of the release that the Dockerfiles start from.
PYTHON = "python3.13"
SITE = Path(f"usr/local/lib/{PYTHON}/dist-packages")
#: Same time for every file, so that the same content makes the same layer.
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH") or 0)


def compile_all(tree: Path, folder: Path, *, sources: bool = True) -> None:
    """With the paths of the image in the code objects, and no check of the source's time at every import.

    Without sources a traceback still names file and line; the text of the line is what it lacks.
    """
    done = compileall.compile_dir(
        str(folder), quiet=1, stripdir=str(tree), prependdir="/", workers=os.cpu_count() or 1, legacy=not sources,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, maxlevels=50,
    )  # fmt: skip
    if not done:
        sys.exit(f"error: something in {folder} cannot be compiled")
    if not sources:
        for path in folder.rglob("*.py"):
            path.unlink()


def same_times(tree: Path) -> None:
    for folder, folders, files in os.walk(tree, topdown=False):
        for name in (*folders, *files):
            os.utime(os.path.join(folder, name), (EPOCH, EPOCH), follow_symlinks=False)
    os.utime(tree, (EPOCH, EPOCH))
