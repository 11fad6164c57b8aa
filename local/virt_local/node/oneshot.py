"""Runs one command in the host image and waits for it: for work that must see what a launcher sees (the probe)."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virt_core.apis.base import encode
from virt_core.apis.podparts import ResourceRequirements
from virt_core.apis.pods import Capabilities, Container, Pod, SecurityContext
from virt_core.runtime.seccomp import default_profile
from virt_local.node.devices import PATHS, PREFIX, devices_of, offered
from virt_local.node.images.host import HostImage, path_variable
from virt_local.node.images.root import OciMount, drop_overlay, mount_overlay
from virt_local.node.layout import remove_tree, write_atomic
from virt_local.node.oci.context import BundleContext, User
from virt_local.node.oci.spec import render
from virt_local.node.runtime import cgroups
from virt_local.node.runtime.monitor import UMASK
from virt_local.node.runtime.runc import Runc

_BUNDLE_PREFIX = "oneshot-"
_CGROUP_PREFIX = "virtpod-oneshot-"
_MAX_OUTPUT = 1 << 20
_POLL_S = 0.1


@dataclass(frozen=True)
class Mount:
    """A directory of the host and where the command sees it. A writable one must belong to the command's user."""

    source: Path
    destination: str
    read_only: bool = False


def run_host_container(
    argv: Sequence[str],
    mounts: Sequence[Mount] = (),
    *,
    uid: int = 107,
    gid: int = 107,
    timeout_s: float = 120.0,
    env: Mapping[str, str] | None = None,
    devices: Sequence[str] | None = None,
    directory: Path | None = None,
    cgroup: str = "",
    protected: Sequence[Path] = (),
    stop: threading.Event | None = None,
    runc: str = "runc",
) -> tuple[int, str]:
    """Returns the exit code and the output (both streams). No network, no capabilities, read-only root with a /tmp.

    `devices` are names such as "kvm"; by default all that this node offers. Whoever is killed while he waits leaves
    things in `directory` and below `cgroup`, for `clear`. Raises TimeoutError, and InterruptedError at the stop.
    """
    with tempfile.TemporaryDirectory(prefix=_BUNDLE_PREFIX, dir=directory) as work:
        bundle = Path(work)
        root = HostImage(bundle / "image", [bundle, *protected]).root()
        names = list(devices) if devices is not None else [name.removeprefix(PREFIX) for name in offered()]
        try:
            root_path = mount_overlay(root, bundle)
            context = BundleContext(
                pod=Pod(),
                container=_container(argv, names),
                root=root,
                root_path=root_path,
                user=User(uid, gid),
                env={"PATH": path_variable(), "HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
                hostname="oneshot",
                cgroup=f"{cgroup}/{_CGROUP_PREFIX}{uuid.uuid4().hex}",
                netns=None,
                mounts=[_scratch(), *(_bind(mount) for mount in mounts)],
                devices=[device for name in names if name in PATHS for device in devices_of(_container([], [name]))],
                seccomp=default_profile(),
                unified_cgroups=cgroups.only_unified(),
            )
            return _run(render(context), bundle, Runc(runc, bundle / "runc"), timeout_s, stop or threading.Event())
        finally:
            drop_overlay(bundle)


def clear(directory: Path, cgroup: str) -> None:
    """Ends and removes what the killed left there, and nothing of others. Raises OSError when it cannot."""
    for name in cgroups.children(cgroup):
        if name.startswith(_CGROUP_PREFIX):
            cgroups.remove(f"{cgroup}/{name}")
    for bundle in directory.glob(f"{_BUNDLE_PREFIX}*"):
        drop_overlay(bundle)
        remove_tree(bundle)


def _container(argv: Sequence[str], devices: Sequence[str]) -> Container:
    return Container(
        name="oneshot",
        command=list(argv),
        # Somebody waits for it: without a request a busy machine would leave it no time at all.
        resources=ResourceRequirements(requests={"cpu": "1"}, limits={PREFIX + name: 1 for name in devices}),
        security_context=SecurityContext(
            capabilities=Capabilities(drop=["ALL"]), allow_privilege_escalation=False, read_only_root_filesystem=True
        ),
    )


def _scratch() -> OciMount:
    return {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]}


def _bind(mount: Mount) -> OciMount:
    options = ["rbind", "ro" if mount.read_only else "rw", "nosuid", "nodev"]
    return {"destination": mount.destination, "type": "bind", "source": str(mount.source), "options": options}


def _run(spec: dict[str, Any], bundle: Path, runc: Runc, timeout_s: float, stop: threading.Event) -> tuple[int, str]:
    write_atomic(bundle / "config.json", encode(spec))
    name = bundle.name
    # A runc that outlives us would go on making what `clear` has removed.
    with_us = ["setpriv", "--pdeathsig=KILL", "--"]
    command = [*with_us, runc.program, f"--root={runc.root}", "run", f"--bundle={bundle}", name]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        umask=UMASK,
        env={"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")},
    ) as process:
        try:
            output = _wait(process, spec["process"]["args"][0], timeout_s, stop)
        finally:
            process.kill()
            runc.delete(name)
            cgroups.remove(spec["linux"]["cgroupsPath"])
    return process.returncode, output[-_MAX_OUTPUT:].decode(errors="replace")


def _wait(process: subprocess.Popen[bytes], name: str, timeout_s: float, stop: threading.Event) -> bytes:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return process.communicate(timeout=_POLL_S)[0]
        except subprocess.TimeoutExpired:
            if stop.is_set():
                raise InterruptedError(f"{name} was stopped") from None
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} took longer than {timeout_s:.0f} s") from None
