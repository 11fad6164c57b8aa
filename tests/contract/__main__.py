"""`python -m contract ACTION [START]` runs the cases whose names start so, on one server, and tells of it.

A tool for whoever adds a case (with PYTHONPATH=tests): `show` prints transcripts of virt-local, `local` how they differ
from the recorded ones, `record` writes down what the cluster in KUBECONFIG answers, or, without one, a bare control
plane made of the programs of the test cluster.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from contract import golden
from contract.engine import Engine, from_kubeconfig, reachable_address
from contract.local import virt_local
from contract.real import cluster_programs, control_plane, own_address
from contract.rig import all_cases, converse, rig


def _engine(action: str, directory: Path) -> AbstractContextManager[Engine]:
    if action != "record":
        return virt_local(directory)
    if os.environ.get("KUBECONFIG"):
        config = Path(os.environ["KUBECONFIG"])
        return nullcontext(from_kubeconfig(config, os.environ.get("CONTRACT_HOST") or reachable_address(config)))
    return control_plane(cluster_programs(), directory, os.environ.get("CONTRACT_HOST") or own_address())


def main(action: str, pattern: str = "") -> int:
    recorded, answered, broken = golden.load(), {}, []
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        with _engine(action, place / "server") as engine, rig(engine, place / "backends") as backends:
            for name, case in all_cases().items():
                if not name.startswith(pattern):
                    continue
                started = time.monotonic()
                try:
                    answered[name] = converse(case, engine, backends)
                except Exception:
                    broken.append(name)
                    print(f"=== {name}: {traceback.format_exc()}")
                taken = time.monotonic() - started
                if taken > 1:
                    print(f"--- {name}: {taken:.1f} s")
    if action == "record":
        golden.save({k: v for k, v in (recorded | answered).items() if k in all_cases()})
        return len(broken)
    differing = 0
    for name, transcript in answered.items():
        if action == "show":
            print(f"=== {name}\n{golden.text(transcript)}")
        elif text := golden.difference(recorded.get(name, []), transcript):
            differing += 1
            print(f"=== {name}\n{text}")
    print(f"{len(answered)} cases, {differing} differ, {len(broken)} broke: {broken}")
    return differing + len(broken)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]) > 0)
