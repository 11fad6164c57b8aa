"""Puts our own packages and the programs that start them into the tree of an image.

Usage: programs.py --to TREE --source FOLDER --program PROGRAM...

FOLDER holds pyproject.toml and the packages, PROGRAM is a name of [project.scripts]. A program is three lines that
import its main function: what pip generates also loads the regular expressions, on the path of every start.
"""

from __future__ import annotations

import argparse
import shutil
import tomllib
from pathlib import Path

from tree import PYTHON, SITE, compile_all, same_times

#: Isolated: neither the environment nor the working directory says what is imported. No bytecode is ever written.
SCRIPT = """\
#!/usr/bin/{python} -IB
import sys
from {module} import {function}
sys.exit({function}())
"""


def write_program(tree: Path, name: str, target: str) -> None:
    module, _, function = target.partition(":")
    path = tree / "usr/local/bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SCRIPT.format(python=PYTHON, module=module, function=function))
    path.chmod(0o755)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--program", action="append", required=True)
    args = parser.parse_args()
    scripts = tomllib.loads((args.source / "pyproject.toml").read_text())["project"]["scripts"]
    for name in args.program:
        write_program(args.to, name, scripts[name])
    site = args.to / SITE
    for package in sorted(args.source.glob("virt_*")):
        shutil.copytree(package, site / package.name, ignore=shutil.ignore_patterns("__pycache__", "*.pyi", "*.proto"))
    compile_all(args.to, site)
    same_times(args.to)


if __name__ == "__main__":
    main()
