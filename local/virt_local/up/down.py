"""`virt-local down`: guests and Pods end in order, then the components, then everything that was made around them.

Each step also works on what a crash left behind, so a second `down`, or one after a kill -9, ends in the same state.
"""

from __future__ import annotations

import dataclasses
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from virt_core.kube.client import KubeClient
from virt_core.kube.connect import ConnectError, load_connection
from virt_core.kube.errors import ApiError
from virt_core.runtime.procs import ProcessGone
from virt_local.node.runtime import cgroups
from virt_local.storage import loops
from virt_local.up import components, network, probe, readiness, whereabouts
from virt_local.up.ending import end_workloads
from virt_local.up.errors import UpError
from virt_local.up.instance import Instance
from virt_local.up.processes import stop_processes
from virt_local.up.progress import Progress
from virt_local.up.state import ProcessBook, supervisor_of

_SUPERVISOR_S = 60.0
_NODE_S = 120.0


def take_down(instance: Instance, progress: Progress, *, purge: bool, limit_s: float | None) -> None:
    instance = _with_all_nodes(instance)
    _end_workloads(instance, progress, limit_s)
    _stop_supervisor(instance, progress)
    probe.clear_killed(instance)
    _clean_nodes(instance, progress)
    removed = [*network.tear_down(instance), *loops.detach_below(components.volume_dir(instance))]
    if removed:
        progress.step(f"removed {', '.join(removed)}")
    if left_on := network.release_forwarding():
        progress.step(left_on)
    _remove_cgroups(instance)
    if purge and instance.data_dir.exists():
        _purge(instance.data_dir)
        progress.step(f"removed {instance.data_dir}")
    if purge:
        whereabouts.forget(instance)


def _with_all_nodes(instance: Instance) -> Instance:
    """An earlier `up` may have had more nodes than the last one."""
    found = [path.name.removeprefix("node") for path in (instance.data_dir / "nodes").glob("node*")]
    highest = max((int(number) for number in found if number.isdigit()), default=0)
    return dataclasses.replace(instance, node_count=max(instance.node_count, highest))


def _end_workloads(instance: Instance, progress: Progress, limit_s: float | None) -> None:
    """Without an API this step is skipped."""
    client = _client(instance)
    if client is None:
        return
    try:
        end_workloads(client, progress, limit_s)
    except ApiError as err:
        progress.step(f"the API no longer answers ({err}): killing what is left")
    finally:
        client.close()


def _client(instance: Instance) -> KubeClient | None:
    try:
        client = KubeClient(load_connection(str(instance.admin_kubeconfig)), "virt-local", timeout_s=10.0)
    except ConnectError:
        return None
    if readiness.api_ready(client):
        return client
    client.close()
    return None


def _stop_supervisor(instance: Instance, progress: Progress) -> None:
    process = supervisor_of(instance)
    if process is not None:
        try:
            process.signal(signal.SIGTERM)
            if not process.wait(_SUPERVISOR_S):
                process.signal(signal.SIGKILL)
                process.wait(5.0)
        except ProcessGone:
            pass
        progress.step("stopped the components")
    stop_processes(ProcessBook(instance.run_dir / "pids").living())
    for record in (instance.run_dir / "pids").glob("*.pid"):
        record.unlink(missing_ok=True)


def _clean_nodes(instance: Instance, progress: Progress) -> None:
    """Ends what is left of Pods, node by node, in the node's own network namespace."""
    for each in instance.nodes:
        if not instance.node_dir(each.name).exists():
            continue
        command = components.node_purge(instance, each, in_netns=Path(each.netns_path).exists())
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_NODE_S, check=False)
        except subprocess.TimeoutExpired as err:
            raise UpError(f"{each.name} could not be cleaned within {_NODE_S:.0f} s") from err
        if done.returncode != 0:
            raise UpError(f"{each.name} could not be cleaned: {done.stderr.strip()[-2000:]}")
        progress.step(f"cleaned {each.name}")


def _remove_cgroups(instance: Instance) -> None:
    """The instance's own group in every hierarchy; its nodes have emptied it."""
    group = cgroups.of_instance(instance.name)
    try:
        cgroups.remove_emptied(group)
    except OSError as err:
        raise UpError(f"the cgroup {group} could not be removed: {err}") from err


def _purge(directory: Path, mounts: Callable[[], str] = lambda: Path("/proc/self/mounts").read_text()) -> None:
    """Never through a mount: what is mounted below may be somebody's data."""
    below = [line.split()[1] for line in mounts().splitlines() if line.split()[1].startswith(f"{directory}/")]
    if below:
        raise UpError(f"{directory} still has mounts ({', '.join(below[:3])}); run `virt-local down` again")
    shutil.rmtree(directory)
