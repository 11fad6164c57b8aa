"""Which Python packages go into an image: exact versions and the hash of the one file that is taken.

`constraints.txt` names a version for everything in the project; a lock is what one component needs of it. The images
are built for one architecture and one Python, so one hash for each package is enough. The first line of a lock tells
what it was made from; when that has changed, `make images` makes the lock again and says so.
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

#: The Python of the images' Debian release.
PYTHON = (3, 11)
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
    digest = hashlib.sha256("\n".join([*wanted, constraints]).encode()).hexdigest()[:16]
    return f"# Made by hack/images/lock.py from pyproject.toml and constraints.txt ({digest}); do not edit."


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
        command = [self._python(), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report", "-", "-c", str(self._checkout / "constraints.txt"), *wanted]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode != 0:
            raise ImageError(f"pip cannot resolve {', '.join(wanted)}: {done.stderr.strip()[-500:]}")
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def _python(self) -> str:
        """The project's virtualenv, if its Python is the images' one: markers and wheels depend on it."""
        python = self._checkout / ".venv/bin/python"
        code = f"import sys; sys.exit(sys.version_info[:2] != {PYTHON})"
        if not python.exists() or subprocess.run([str(python), "-c", code], check=False).returncode != 0:
            need = ".".join(map(str, PYTHON))
            raise ImageError(f"pyproject.toml changed, and locking it needs a virtualenv with Python {need} in .venv")
        return str(python)
