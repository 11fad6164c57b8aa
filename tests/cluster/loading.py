"""Images into a node's containerd, by its own client, in the namespace that the kubelet looks into."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from .errors import ClusterError
from .images import Image, Source

_DEADLINE_S = 300.0
ROOT = Path(__file__).resolve().parents[2]
GUEST_NAME = "virtpod.internal/guest:v1"


def project_images(root: Path = ROOT) -> list[tuple[Path, str]]:
    """What this checkout has built so far: the components, whose archives name them, and the test guest."""
    found = [(path, "") for path in sorted((root / ".build" / "images").glob("*.tar"))]
    guest = root / ".build" / "guest"
    return [*found, (guest, GUEST_NAME)] if (guest / "index.json").exists() else found


def import_images(enter: Sequence[str], ctr: Path, node: str, source: Source, images: list[Image]) -> bool:
    """False: they are there already."""
    client = [*enter, str(ctr), "-n", "k8s.io", "images"]
    if _present(client, images):
        return False
    process = subprocess.Popen(
        [*client, "import", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdin is not None
    try:
        with process.stdin as pipe:
            source.write(pipe, images)
    except BrokenPipeError:
        pass  # It says why below.
    process.stdin = None
    out, _ = process.communicate(timeout=_DEADLINE_S)
    if process.returncode != 0:
        lines = out.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else "no reason given"
        raise ClusterError(f"{source.path} could not be imported on {node}: {reason}")
    return True


def _present(client: list[str], images: list[Image]) -> bool:
    done = subprocess.run([*client, "ls"], capture_output=True, text=True, timeout=60, check=False)
    known = digests(done.stdout)
    return all(known.get(name) == image.digest for image in images for name in image.names)


def digests(table: str) -> dict[str, str]:
    """Name → digest, from the columns REF, TYPE, DIGEST that the client prints."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return {row[0]: row[2] for row in rows if len(row) > 2}
