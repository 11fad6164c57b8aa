"""The stored inputs: small files, one folder for each target. What once broke something stays here for good.

A file whose name begins with `xfail-` is known to break something that is being mended elsewhere. It must go on doing
so, so that whoever mends it also renames the file.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

HERE = Path(__file__).parent / "corpus"
EXPECTED_TO_FAIL = "xfail-"
#: Reasons of the expected failures, by target and file.
REASONS = HERE / "xfail.json"


def files(target: str) -> list[Path]:
    return sorted(path for path in (HERE / target).glob("*") if path.is_file())


def reason(path: Path) -> str:
    known: dict[str, str] = json.loads(REASONS.read_text()) if REASONS.exists() else {}
    return known.get(f"{path.parent.name}/{path.name}", "")


def keep(target: str, data: bytes) -> Path:
    """Writes what broke something down."""
    path = HERE / target / f"crash-{hashlib.sha256(data).hexdigest()[:12]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
