"""pytest whose failures count when they come twice: what fails is run once more, alone.

Usage: python -m tests.again ARGUMENTS OF PYTEST...

Guests, containers and clusters share two cores with each other here. What failed once and passed alone is named at the
end and kept in .build/failed-once.txt: somebody must look at it (decision 37). Many failures are no accident, so
none of them is repeated.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / ".build/failed-once.txt"
#: More than these in one run are not repeated.
MOST = 15
#: pytest's own: some tests failed.
FAILED = 1

Run = Callable[[Sequence[str]], int]


def pytest(arguments: Sequence[str]) -> int:
    slowest = ["--durations=15", "--durations-min=10"]
    return subprocess.run([sys.executable, "-m", "pytest", "-q", *slowest, *arguments], check=False).returncode


def failures(cache: Path) -> list[str]:
    """The names of the tests that failed, as pytest left them behind."""
    try:
        return sorted(json.loads((cache / "v/cache/lastfailed").read_text()))
    except FileNotFoundError:
        return []


def run(arguments: Sequence[str], pytest: Run = pytest, record: Path = RECORD) -> int:
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        code = pytest([*arguments, "-o", f"cache_dir={first}"])
        failed = failures(Path(first))
        if code != FAILED or not 0 < len(failed) <= MOST:
            return code
        print(f"== {len(failed)} failed; once more, alone:", *failed, sep="\n   ", flush=True)
        code = pytest([*failed, "-o", f"cache_dir={second}"])
    if code == 0:
        print("== failed at first and passed alone; look at them:", *failed, sep="\n   ", flush=True)
        record.parent.mkdir(exist_ok=True)
        with record.open("a") as file:
            file.writelines(f"{name}\n" for name in failed)
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
