"""`make cluster-down`: ends everything of a cluster and removes what was made for it, whatever is left of it.

Each step looks at what is there rather than at what should be, so it also works after a half start, after a supervisor
was killed, and when the state directory is gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from virt_core.runtime.procs import ProcessGone, ProcessId
from virt_local.node import kernel
from virt_local.storage import loops
from virt_local.up.progress import Progress

from . import binaries, cgroups, machine, network, preflight, storage, supervise, tunables
from .cluster import signal_process
from .errors import ClusterError
from .layout import MAX_NODES, STATE_ROOT, Layout, check_name, load

_TERM_S = 20.0
_KILL_S = 15.0
_PROGRAMS = {"etcd", "coredns", "containerd", "containerd-shim-runc-v2", *binaries.CALLED}


def take_down(name: str, progress: Progress, root: Path = STATE_ROOT) -> None:
    preflight.check_root()
    check_name(name)
    layout = _layout(name, root)
    if not leftovers(layout):
        progress.line(f"There is no cluster {name!r} here.")
    _stop_processes(layout, progress)
    removed = [*network.tear_down(layout), *loops.detach_below(storage.volume_dir(layout))]
    removed += [f"cgroup {layout.cgroup}"] if cgroups.remove(layout.cgroup) else []
    if removed:
        progress.step(f"removed {', '.join(removed)}")
    _remove_files(layout, progress)
    if left := leftovers(layout):
        raise ClusterError(f"Something of the cluster {name!r} is left: {'; '.join(left)}.")


def _layout(name: str, root: Path) -> Layout:
    """Without a readable record: all nodes that there could be."""
    try:
        layout = load(name, root)
    except ClusterError:
        layout = None
    return layout or Layout(name, node_count=MAX_NODES, root=root)


def _stop_processes(layout: Layout, progress: Progress) -> None:
    """Supervisors first, or they would start again what we end."""
    keepers = list(supervise.supervisors(layout).living().values())
    for keeper in keepers:
        signal_process(keeper, signal.SIGTERM)
    _wait_or_kill(keepers, _TERM_S)
    deadline = time.monotonic() + _KILL_S
    while living := processes(layout):
        if time.monotonic() > deadline:
            raise ClusterError(f"Processes of the cluster do not end: {', '.join(str(each.pid) for each in living)}.")
        for process in living:
            signal_process(process)
        _wait_or_kill(living, 2.0)
    if keepers:
        progress.step("stopped the nodes and the control plane")


def _wait_or_kill(processes: list[ProcessId], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    for process in processes:
        if not process.wait(max(deadline - time.monotonic(), 0.1)):
            signal_process(process)
            process.wait(2.0)


def processes(layout: Layout) -> list[ProcessId]:
    """Everything that belongs to the cluster: by the records, by namespace, by cgroup, and by the settings that a
    program was started with."""
    roles = [supervise.CONTROL, *(node.name for node in layout.nodes)]
    recorded = [process.pid for role in roles for process in supervise.book(layout, role).living().values()]
    inside = [pid for node in layout.nodes for pid in machine.inhabitants(node)]
    pids = {*recorded, *inside, *cgroups.processes(layout.cgroup), *_strays(layout)}
    found = []
    for pid in sorted(pids - {os.getpid()}):
        try:
            found.append(ProcessId.of(pid))
        except ProcessGone:
            continue
    return found


def _strays(layout: Layout) -> list[int]:
    """One of our programs with a path of this cluster in its arguments."""
    mark = f"{layout.state}/"
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            args = Path("/proc", entry, "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        program = Path(args[0]).name in _PROGRAMS and any(mark in arg for arg in args[1:])
        if program or _is_supervisor(args, layout.name):
            found.append(int(entry))
    return found


def _is_supervisor(args: list[str], name: str) -> bool:
    return args[1:6] == ["-m", "tests.cluster", "supervise", "--cluster", name]


def _remove_files(layout: Layout, progress: Progress) -> None:
    kernel.unmount_below(layout.state)
    if layout.state.exists():
        shutil.rmtree(layout.state)
        progress.step(f"removed {layout.state}")
    others = [path for path in layout.root.iterdir() if path.is_dir()] if layout.root.is_dir() else []
    if others or not layout.root.is_dir():
        return
    tunables.put_back(layout.root / ".tunables.json")
    machine.remove_mount_points(layout.root / ".mount-points")
    shutil.rmtree(layout.root)


def leftovers(layout: Layout) -> list[str]:
    """One line for each thing on this machine that belongs to the cluster."""
    found = [f"process {process.pid}" for process in processes(layout)]
    found += [f"network namespace {name}" for name in network.own_namespaces(layout)]
    found += [f"link {name}" for name in network.own_links(layout)]
    found += [f"nft table {name}" for name in network.own_tables(layout)]
    found += [f"cgroup {path}" for path in cgroups.existing(layout.cgroup)]
    found += [f"mount {path}" for path in kernel.mounts_below(layout.state)]
    return found + ([f"directory {layout.state}"] if layout.state.exists() else [])
