#!/usr/bin/env python3
"""Freezes what a release promises: `hack/freeze_release.py TAG` in the commit after the one that was tagged.

The gRPC contracts go to tests/golden/contracts as descriptors in text form, the CRDs to tests/golden/crds-released
without their words. tests/rules compares both with what the tree says, so that a launcher of the last release keeps
working under a new handler, and objects that were stored then can still be read and written. tests/kubernetes runs that
release's launcher, from the commit that tests/golden/contracts/RELEASE names.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from framework.crdcompat import summary  # noqa: E402
from framework.protocompat import compile_protos  # noqa: E402
from google.protobuf import text_format  # noqa: E402

CONTRACTS = ROOT / "tests" / "golden" / "contracts"
CRDS = ROOT / "tests" / "golden" / "crds-released"


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: hack/freeze_release.py COMMIT", file=sys.stderr)
        return 2
    commit = _git("rev-parse", f"{sys.argv[1]}^{{commit}}").decode().strip()
    with tempfile.TemporaryDirectory() as scratch:
        source = _checkout(commit, Path(scratch))
        _freeze_contracts(source / "protos", Path(scratch))
        _freeze_crds(source / "core" / "virt_core" / "manifests" / "crds")
    (CONTRACTS / "RELEASE").write_text(f"{commit}\n")
    return 0


def _git(*args: str) -> bytes:
    return subprocess.run(["git", *args], cwd=ROOT, check=True, capture_output=True).stdout


def _checkout(commit: str, scratch: Path) -> Path:
    archive = _git("archive", commit, "protos", "core/virt_core/manifests")
    subprocess.run(["tar", "-x", "-C", str(scratch)], input=archive, check=True)
    return scratch


def _freeze_contracts(protos: Path, scratch: Path) -> None:
    sources = sorted(str(path.relative_to(protos)) for path in protos.glob("virt_protos/*/v1/*.proto"))
    _empty(CONTRACTS)
    for name, file in compile_protos(protos, sources, scratch).items():
        target = CONTRACTS / f"{Path(name).stem}.textpb"
        target.write_text(text_format.MessageToString(file))
        print(f"wrote {target.relative_to(ROOT)}")


def _freeze_crds(manifests: Path) -> None:
    _empty(CRDS)
    for path in sorted(manifests.glob("*.yaml")):
        target = CRDS / f"{path.stem}.json"
        crd = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        target.write_text(json.dumps(summary(crd), sort_keys=True, separators=(",", ":")) + "\n")
        print(f"wrote {target.relative_to(ROOT)}")


def _empty(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.iterdir():
        path.unlink()


if __name__ == "__main__":
    sys.exit(main())
