"""A long pass: `make fuzz FUZZ_SECONDS=600`, or `python -m tests.fuzz [TARGET …] [--seconds N] [--seed N]`.

Each target gets an equal part of the time, in passes of new inputs. What breaks something is made small and written to
the corpus; the exit code is 1 then. The seed is printed, and the same seed makes the same inputs.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from fuzz import corpus
from fuzz.catalog import TARGETS
from fuzz.drive import Broken, drive
from fuzz.target import Target

_PASS = 400


def main() -> int:
    options = _options()
    print(f"seed {options.seed}", flush=True)
    each_s = options.seconds / len(options.targets)
    broken = [name for name in options.targets if not _work(TARGETS[name], each_s, options.seed)]
    return 1 if broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.fuzz")
    parser.add_argument("targets", nargs="*", choices=[[], *sorted(TARGETS)])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    found = parser.parse_args()
    found.targets = found.targets or sorted(TARGETS)
    return found


def _work(target: Target, seconds: float, seed: int) -> bool:
    """True: nothing broke."""
    with tempfile.TemporaryDirectory(prefix="virtpod-fuzz-") as directory, target.open(Path(directory)) as run:
        done = [0]

        def counted(data: bytes) -> None:
            done[0] += 1
            run(data)

        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                drive(target, counted, _PASS, seed)
                seed += 1
        except Broken as found:
            traceback.print_exception(found.__cause__)
            path = corpus.keep(target.name, found.data)
            print(f"{target.name}: broken with seed {seed}; the input is {path}", flush=True)
            return False
    print(f"{target.name}: {done[0]} inputs in {seconds:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
