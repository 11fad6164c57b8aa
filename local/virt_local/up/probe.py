"""The capability probe: what QEMU and libvirt can do here, found out once and kept for every launcher.

A cold libvirt asks each emulator for seconds. The answer holds as long as the programs, the kernel and the access to
KVM are the same, and that is what the stamp says.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from virt_local.node import oneshot
from virt_local.node.layout import remove_tree
from virt_local.node.runtime import cgroups
from virt_local.up.errors import UpError
from virt_local.up.instance import Instance
from virt_local.up.preflight import which

_PROGRAMS = ("libvirtd", "virtqemud", "qemu-system-x86_64", "qemu-system-aarch64", "qemu-system-s390x")
_STAMP = ".virt-local-stamp"
_INSIDE = "/run/node-info"
_WORK_PREFIX = "probe-"
#: A second on an idle machine; minutes on one that has a dozen other things to do.
_DEADLINE_S = 300.0
LAUNCHER_UID = 107


def machine_stamp() -> str:
    facts = [platform.release(), str(os.access("/dev/kvm", os.R_OK | os.W_OK))]
    for name in _PROGRAMS:
        path = which(name)
        if path is not None:
            found = os.stat(path)
            facts.append(f"{path}:{found.st_size}:{found.st_mtime_ns}")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def ensure_probe(directory: Path, probe: Callable[[Path], None], stamp: str = "") -> bool:
    """Runs the probe into the directory unless its result still holds. True when it ran."""
    stamp = stamp or machine_stamp()
    mark = directory / _STAMP
    if mark.exists() and mark.read_text() == stamp:
        return False
    directory.mkdir(parents=True, exist_ok=True)
    probe(directory)
    mark.write_text(stamp)
    return True


def run_probe(instance: Instance, directory: Path, stop: threading.Event) -> None:
    """In a container of the launcher's own image, so that it sees what launchers will see."""
    with tempfile.TemporaryDirectory(prefix=_WORK_PREFIX, dir=instance.run_dir) as work:
        result = Path(work) / "result"
        result.mkdir()
        os.chown(result, LAUNCHER_UID, LAUNCHER_UID)
        code, output = oneshot.run_host_container(
            ["virt-launcher", "--node-probe", _INSIDE],
            [oneshot.Mount(result, _INSIDE)],
            uid=LAUNCHER_UID,
            gid=LAUNCHER_UID,
            timeout_s=_DEADLINE_S,
            directory=instance.run_dir,
            cgroup=cgroups.of_instance(instance.name),
            protected=(instance.data_dir,),
            stop=stop,
        )
        if code != 0:
            raise UpError(f"the capability probe failed (exit code {code}): {output.strip()[-2000:]}")
        take_over(result, directory)


def clear_killed(instance: Instance) -> None:
    """Ends the probe of an `up` that was killed, and removes what it left. Of this instance, and of no other."""
    try:
        oneshot.clear(instance.run_dir, cgroups.of_instance(instance.name))
        for work in instance.run_dir.glob(f"{_WORK_PREFIX}*"):
            remove_tree(work)
    except OSError as err:
        raise UpError(f"a capability probe that was killed could not be cleaned away: {err}") from err


def take_over(result: Path, directory: Path) -> None:
    """Copies the plain files of the result, so that what launchers share belongs to root and holds no links."""
    for path in sorted(result.rglob("*")):
        if path.is_symlink():
            continue
        target = directory / path.relative_to(result)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
            target.chmod(0o755)
        elif path.is_file():
            target.write_bytes(path.read_bytes())
            target.chmod(0o644)
