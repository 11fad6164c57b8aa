"""A node as a machine: process 1 in namespaces of its own, with standard paths that are its own. Killing process 1 is
how a node dies: the kernel ends everything in it, and the mounts go with the last process.

The machine's own mounts of other sandboxes (containers' roots, kept network namespaces) are not taken along, because a
copy of them here would keep them alive there.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

from virt_core.runtime.procs import ProcessId, children

from .errors import ClusterError
from .layout import Layout, Node

#: Directory in the node → directory in its home. Everything that a node keeps and no other may see.
OWN_PATHS = {
    "/var/lib/kubelet": "kubelet",
    "/var/lib/containerd": "containerd",
    "/var/lib/cni": "cni",
    "/var/lib/virtpod": "virtpod",
    "/etc/cni/net.d": "net.d",
    "/var/log": "log",
}
_DEADLINE_S = 15.0


def boot_script(layout: Layout, node: Node, init: Path) -> str:
    """What process 1 does before it only waits. Mounts are made here, where they hide nothing from anybody else."""
    home = layout.node_dir(node)
    binds = "\n".join(f'mount --bind "{home}/{own}" "{path}"' for path, own in OWN_PATHS.items())
    return f"""#!/bin/sh
# Process 1 of {node.name}.
set -eu
awk '$5 ~ "^/run/" || / - (nsfs|overlay) / && $5 != "/" {{ print $5 }}' /proc/self/mountinfo | sort -r |
while read -r point; do
    umount -l "$point" 2>/dev/null || true
done
mount -t proc proc /proc
mount -t tmpfs -o mode=755,size=256m tmpfs /run
mkdir -p /run/lock /run/netns
{binds}
# Volumes that the kubelet mounts must appear in containers that run already.
mount --make-rshared /
hostname {node.name} 2>/dev/null || true
: > "{home}/booted"
exec "{init}"
"""


def make_home(layout: Layout, node: Node) -> None:
    home = layout.node_dir(node)
    for own in OWN_PATHS.values():
        (home / own).mkdir(parents=True, exist_ok=True)


def make_mount_points(record: Path) -> None:
    """What the machine does not have yet is noted, so that it can be removed in the end."""
    made = record.read_text().split() if record.exists() else []
    for path in map(Path, OWN_PATHS):
        missing = [each for each in (path, *path.parents) if not each.exists()]
        if missing:
            made += [str(each) for each in missing]
            record.write_text("\n".join(dict.fromkeys(made)) + "\n")
            path.mkdir(parents=True)


def remove_mount_points(record: Path) -> None:
    """Only what is empty: somebody else may use it by now."""
    for line in sorted(record.read_text().split(), key=len, reverse=True) if record.exists() else []:
        with contextlib.suppress(OSError):
            Path(line).rmdir()


def start(layout: Layout, node: Node, init: Path) -> tuple[subprocess.Popen[bytes], ProcessId]:
    """Boots the machine. Gives the process that waits for it and its process 1, as this side sees them."""
    home = layout.node_dir(node)
    script = home / "boot.sh"
    script.write_text(boot_script(layout, node, init))
    (home / "booted").unlink(missing_ok=True)
    command = ["nsenter", f"--net={node.netns_path}", "--"]
    command += ["unshare", "--mount", "--propagation", "slave", "--uts", "--ipc", "--pid", "--fork", "sh", str(script)]
    with layout.log(f"{node.name}-boot").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    return process, _booted(layout, node, process)


def _booted(layout: Layout, node: Node, process: subprocess.Popen[bytes]) -> ProcessId:
    deadline = time.monotonic() + _DEADLINE_S
    while process.poll() is None and time.monotonic() < deadline:
        found = children(process.pid)
        if found and (layout.node_dir(node) / "booted").exists():
            return ProcessId.of(found[0])
        time.sleep(0.02)
    process.kill()
    lines = layout.log(f"{node.name}-boot").read_text(errors="replace").strip().splitlines()
    raise ClusterError(f"{node.name} did not boot: {lines[-1] if lines else 'no reason given'}.")


def enter(init: ProcessId) -> list[str]:
    """The words before a command that is to run in the node."""
    return ["nsenter", f"--target={init.pid}", "--mount", "--net", "--uts", "--ipc", "--pid", "--"]


def inhabitants(node: Node) -> list[int]:
    """Processes in the node's network namespace, process 1 among them, as long as the namespace has its name."""
    try:
        wanted = os.stat(node.netns_path)
    except FileNotFoundError:
        return []
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                own = os.stat(f"/proc/{entry}/ns/net")
                if (own.st_dev, own.st_ino) == (wanted.st_dev, wanted.st_ino):
                    found.append(int(entry))
    return found
