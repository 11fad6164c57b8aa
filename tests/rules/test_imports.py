"""The import rules of ARCHITECTURE.md, as import-linter contracts in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_import_contracts_hold() -> None:
    """Each package imports only what the table in ARCHITECTURE.md lets it import."""
    linter = Path(sys.executable).parent / "lint-imports"
    command = [linter, "--config", "pyproject.toml"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
