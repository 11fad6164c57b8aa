"""Builds ISO 9660 images in a short-lived child, so that pycdlib never weighs on the launcher's own memory.

The child runs while libvirt already takes the definition; only the start of the machine waits for it.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from virt_core.runtime.record import record
from virt_launcher.disks.cloud_init import IsoPlan
from virt_launcher.errors import LauncherError
from virt_launcher.process.children import Child, Children

_DEADLINE_S = 10.0


@record(slots=True)
class IsoJob:
    """An image that is being built."""

    plan: IsoPlan
    child: Child
    staging: Path
    log: Path

    def finish(self) -> None:
        """Waits for the image; raises when it did not come out well."""
        ended = self.child.wait(_DEADLINE_S)
        if ended is None:
            self.child.kill()
            raise LauncherError(f"{self.plan.field}: the image was not ready within {_DEADLINE_S:.0f} s")
        words = self.log.read_text(errors="replace").strip().splitlines() if self.log.exists() else []
        shutil.rmtree(self.staging, ignore_errors=True)
        if not ended.clean:
            cause = words[-1] if words else ended.describe("its builder")
            raise LauncherError(f"{self.plan.field}: the image could not be built: {cause}")


def begin(plan: IsoPlan, target: Path, children: Children, moment: int = 0) -> IsoJob:
    """Writes the files down and starts the child that packs them. `moment` is the time that the image shows, in
    seconds: the same files at the same moment are the same bytes, on whatever node."""
    staging = target.with_name(f".{target.name}.files")
    shutil.rmtree(staging, ignore_errors=True)
    for name, content in plan.files.items():
        path = staging / "root" / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(content)
    log = staging / "log"
    program = [sys.executable, "-I", "-m", "virt_launcher.disks.iso_child"]
    argv = [*program, plan.label, str(staging / "root"), str(target), str(moment)]
    env = {"PATH": os.environ.get("PATH", "/usr/bin"), "PYTHONDONTWRITEBYTECODE": "1", "TZ": "UTC"}
    return IsoJob(plan, children.spawn(argv, env=env, output=str(log)), staging, log)
