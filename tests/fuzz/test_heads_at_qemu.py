"""What passes our reading of a head names no other file to QEMU either."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from fuzz.drive import samples
from fuzz.targets.images import TARGET, facts_of

#: Each takes a process.
_ASKED = 25


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "disk.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, "8M"], check=True, timeout=60)
    return path


def test_what_passes_stands_alone(image: Path) -> None:
    whole = image.read_bytes()
    passed = [data for data in samples(TARGET, 800, 1) if (facts := facts_of(data)) and facts.format == "qcow2"]
    assert len(passed) >= _ASKED
    read = 0
    for data in passed[:_ASKED]:
        image.write_bytes(data + whole[len(data) :])
        command = ["qemu-img", "info", "--output=json", "-f", "qcow2", image]
        found = subprocess.run(command, check=False, capture_output=True, timeout=60)
        if found.returncode:
            continue  # QEMU refuses more than we do.
        read += 1
        told = json.loads(found.stdout)
        assert "backing-filename" not in told
        assert "data-file" not in (told.get("format-specific") or {}).get("data", {})
    assert read
