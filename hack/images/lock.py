"""Which Python packages go into an image: exact versions and the hash of the one file that is taken.

`constraints.txt` names a version for everything in the project; a lock is what one component needs of it. The images
are built for one architecture and one Python, so one hash for each package is enough. The first line of a lock tells
what it was made from; when that has changed, `make images` makes the lock again and says so.

The Python that asks need not be the images' one: pip is told which wheels to look for. Only conditions in requirements
("; python_version < …") are still judged by the Python that asks, so a lock may hold a package more than it needs.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from problems import ImageError

#: The Python of the images' Debian release, and its libc: wheels are made for that or an older one.
PYTHON = (3, 13)
GLIBC = (2, 41)
#: It comes as source and fits itself to the libvirt that it is built with.
SOURCES_ONLY = "libvirt-python"
DEADLINE_S = 300


def requirements(pyproject: dict[str, Any], extra: str) -> list[str]:
    """What an extra asks for, with extras of our own opened up."""
    project = pyproject["project"]
    found: set[str] = set(project["dependencies"])
    todo, seen = [extra], set()
    while todo:
        name = todo.pop()
        seen.add(name)
        for line in project["optional-dependencies"][name]:
            ours = re.fullmatch(rf"{project['name']}\[([^\]]*)\]", line)
            if ours is None:
                found.add(line)
            else:
                todo += [other.strip() for other in ours[1].split(",") if other.strip() not in seen]
    return sorted(found)


def heading(wanted: list[str], constraints: str) -> str:
    """Covers every constraint: a pin of something deep in the tree may be what changed."""
    facts = [*wanted, constraints, str(PYTHON), str(GLIBC)]
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return f"# Made by hack/images/lock.py from pyproject.toml and constraints.txt ({digest}); do not edit."


def target() -> list[str]:
    """The images' Python in the words of pip."""
    abi = "cp{}{}".format(*PYTHON)
    words = ["--python-version", "{}.{}".format(*PYTHON), "--implementation", "cp"]
    words += [word for name in (abi, "abi3", "none") for word in ("--abi", name)]
    older = [f"manylinux_{GLIBC[0]}_{minor}_x86_64" for minor in range(GLIBC[1], 4, -1)]
    platforms = [*older, "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    return words + [word for name in platforms for word in ("--platform", name)]


def lines(report: dict[str, Any]) -> list[str]:
    """One requirement for each package of pip's report."""
    result = []
    for entry in report["install"]:
        name, version = entry["metadata"]["name"], entry["metadata"]["version"]
        digest = entry["download_info"]["archive_info"]["hashes"]["sha256"]
        result.append(f"{name.lower().replace('_', '-')}=={version} --hash=sha256:{digest}")
    return sorted(result)


class Locks:
    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self._pyproject = tomllib.loads((checkout / "pyproject.toml").read_text())
        self._constraints = (checkout / "constraints.txt").read_text()

    def path(self, extra: str) -> Path:
        return self._checkout / "hack/images/locks" / f"{extra}.txt"

    def fresh(self, extra: str) -> bool:
        first = heading(requirements(self._pyproject, extra), self._constraints)
        path = self.path(extra)
        return path.exists() and path.read_text().partition("\n")[0] == first

    def renew(self, extra: str) -> None:
        wanted = requirements(self._pyproject, extra)
        text = "\n".join([heading(wanted, self._constraints), *lines(self._resolve(wanted))])
        self.path(extra).parent.mkdir(exist_ok=True)
        self.path(extra).write_text(text + "\n")

    def _resolve(self, wanted: list[str]) -> dict[str, Any]:
        """With --target, because pip insists on it for another Python; a dry run writes nothing there."""
        sources = [line for line in wanted if line.startswith(SOURCES_ONLY)]
        wheels = [line for line in wanted if line not in sources]
        report = self._ask(["--only-binary=:all:", *target(), "--target", "/nonexistent", *wheels])
        if sources:
            report["install"] += self._ask(["--no-deps", f"--no-binary={SOURCES_ONLY}", *sources])["install"]
        return report

    def _ask(self, words: list[str]) -> dict[str, Any]:
        python = self._checkout / ".venv/bin/python"
        if not python.exists():
            raise ImageError("pyproject.toml changed, and locking it needs a virtualenv in .venv: make setup-dev")
        command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report", "-", "-c", str(self._checkout / "constraints.txt"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode != 0:
            raise ImageError(f"pip cannot resolve {' '.join(words)}: {done.stderr.strip()[-500:]}")
        report: dict[str, Any] = json.loads(done.stdout)
        return report
