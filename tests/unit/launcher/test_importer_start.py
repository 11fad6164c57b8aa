"""An importer's start: what a source alone needs comes with that source."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("ssl", "_hashlib", "http.client", "http.server", "tarfile", "email")


def test_it_brings_nothing_that_a_mounted_image_does_not_need() -> None:
    code = f"import sys; import virt_launcher.importer.main; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "[]\n"
