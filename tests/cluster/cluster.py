"""A cluster as tests use it: ours, whose processes and nodes can be killed, or somebody's, of which we know the API."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from virt_core.runtime.procs import ProcessGone, ProcessId, children

from . import machine, supervise
from .commands import CONTROL_PLANE, NODE
from .errors import ClusterError
from .images import Source
from .layout import DEFAULT_NAME, STATE_ROOT, Layout, Node, load
from .loading import import_images

ROOT = Path(__file__).resolve().parents[2]
_NODE_S = 90.0


def find_tool(name: str) -> str:
    """kubectl or helm, fetched when the machine has none."""
    done = subprocess.run([str(ROOT / "hack/kubectl"), name], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise ClusterError(f"There is no {name} and none could be fetched: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()


class Cluster:
    def __init__(self, kubeconfig: Path, layout: Layout | None = None) -> None:
        self.kubeconfig = kubeconfig
        self._layout = layout

    @classmethod
    def attach(cls, name: str = DEFAULT_NAME, root: Path = STATE_ROOT) -> Cluster:
        """A cluster that `make cluster` started."""
        layout = load(name, root)
        if layout is None or not layout.kubeconfig.exists():
            raise ClusterError(f"There is no cluster {name!r} here: start it with `make cluster`.")
        return cls(layout.kubeconfig, layout)

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Cluster:
        """Somebody's cluster, unless the file is that of one of ours."""
        layout = load(path.parent.name, path.parent.parent)
        return cls(path, layout if layout is not None and layout.kubeconfig == path else None)

    @classmethod
    def from_environment(cls) -> Cluster:
        """$KUBECONFIG, else the cluster that $VIRTPOD_CLUSTER names, else the default one."""
        path = os.environ.get("KUBECONFIG")
        if path:
            return cls.from_kubeconfig(Path(path).resolve())
        return cls.attach(os.environ.get("VIRTPOD_CLUSTER") or DEFAULT_NAME)

    @property
    def owned(self) -> bool:
        """Are its processes ours to kill?"""
        return self._layout is not None

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            raise ClusterError(f"The cluster of {self.kubeconfig} is not ours: it has no processes or nodes here.")
        return self._layout

    @property
    def nodes(self) -> list[str]:
        if self._layout is not None:
            return [node.name for node in self._layout.nodes]
        return sorted(item["metadata"]["name"] for item in self.get("nodes")["items"])

    @cached_property
    def _kubectl(self) -> str:
        return find_tool("kubectl")

    def environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 60) -> str:
        """Its output; a failure is an error with what it said."""
        done = self.try_kubectl(*args, stdin=stdin, timeout=timeout)
        if done.returncode != 0:
            raise ClusterError(f"kubectl {' '.join(args)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def try_kubectl(
        self, *args: str, stdin: str | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        command = [self._kubectl, *args]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, env=self.environment(), timeout=timeout, check=False
        )

    def get(self, *args: str) -> Any:
        return json.loads(self.kubectl("get", *args, "-o", "json"))

    # Processes and nodes.

    def pids(self, component: str, node: str | None = None) -> list[int]:
        """Of a component of the control plane, or of the nodes: the names are those in CONTROL_PLANE and NODE."""
        if component in CONTROL_PLANE:
            process = supervise.book(self.layout, supervise.CONTROL).living().get(component)
            return [process.pid] if process else []
        if component not in NODE:
            raise ClusterError(f"There is no component {component!r}; there are {', '.join((*CONTROL_PLANE, *NODE))}.")
        chosen = [self.layout.node(node)] if node else list(self.layout.nodes)
        return [pid for each in chosen for pid in self._in_node(each, component)]

    def _in_node(self, node: Node, component: str) -> list[int]:
        """The record names the nsenter that waits for it outside of the node's process namespace."""
        waiting = supervise.book(self.layout, node.name).living().get(component)
        return children(waiting.pid) if waiting else []

    def alive(self, node: str) -> bool:
        return supervise.init_of(self.layout, self.layout.node(node)) is not None

    def kill_node(self, name: str) -> None:
        """The machine loses power: everything in it ends at once, and it stays off."""
        node = self.layout.node(name)
        init = supervise.init_of(self.layout, node)
        if init is None:
            raise ClusterError(f"{name} is dead already.")
        keeper = supervise.supervisors(self.layout).living().get(name)
        signal_process(init)
        if not init.wait(10.0) or (keeper is not None and not keeper.wait(30.0)):
            raise ClusterError(f"{name} did not end within 30 s; {self.layout.log(f'supervisor-{name}')} may say why.")

    def start_node(self, name: str) -> None:
        """Turns the machine on again and waits until its kubelet has said so."""
        if self.alive(name):
            raise ClusterError(f"{name} runs already.")
        since = self._heartbeat(name)
        supervise.launch(self.layout, self.programs, name)
        self.wait_ready([name], newer_than=since)

    @property
    def programs(self) -> Path:
        return Path((self.layout.state / "programs").read_text().strip())

    def wait_ready(self, names: Sequence[str], *, within_s: float = _NODE_S, newer_than: str = "") -> None:
        deadline = time.monotonic() + within_s
        waiting = list(names)
        while waiting := [name for name in waiting if not self._is_ready(name, newer_than)]:
            if time.monotonic() > deadline:
                log = self.layout.log(f"{waiting[0]}-kubelet")
                raise ClusterError(f"{', '.join(waiting)} not Ready within {within_s:.0f} s; {log} may say why.")
            time.sleep(0.3)

    def _is_ready(self, name: str, newer_than: str) -> bool:
        condition = self._ready_condition(name)
        return condition.get("status") == "True" and condition.get("lastHeartbeatTime", "") > newer_than

    def _heartbeat(self, name: str) -> str:
        return str(self._ready_condition(name).get("lastHeartbeatTime", ""))

    def _ready_condition(self, name: str) -> dict[str, Any]:
        done = self.try_kubectl("get", "node", name, "-o", "json")
        conditions = json.loads(done.stdout)["status"].get("conditions", []) if done.returncode == 0 else []
        return next((each for each in conditions if each["type"] == "Ready"), {})

    def run_on(self, node: str, *command: str, timeout: float = 60) -> str:
        """A command inside the node's namespaces."""
        argv = [*self._enter(self.layout.node(node)), *command]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)
        if done.returncode != 0:
            raise ClusterError(f"{' '.join(command)} on {node}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def _enter(self, node: Node) -> list[str]:
        init = supervise.init_of(self.layout, node)
        if init is None:
            raise ClusterError(f"{node.name} is dead: start it before anything can be done on it.")
        return machine.enter(init)

    # Images.

    def load(self, *paths: Path, name: str = "") -> list[str]:
        """Imports OCI archives or layout directories on every living node; gives the names by digest."""
        living = [node for node in self.layout.nodes if self.alive(node.name)]
        ctr = self.programs / "ctr"
        loaded = []
        for path in paths:
            source = Source(path)
            images = source.images(name)
            with ThreadPoolExecutor(len(living) or 1) as pool:
                work = [
                    pool.submit(import_images, self._enter(node), ctr, node.name, source, images) for node in living
                ]
            for each in work:
                each.result()
            loaded += [image.names[-1] for image in images]
        return loaded

    def leftovers(self) -> list[str]:
        """What a `cluster-down` should have removed and did not."""
        from .down import leftovers

        return leftovers(self.layout)


def signal_process(process: ProcessId, number: int = signal.SIGKILL) -> None:
    try:
        process.signal(number)
    except ProcessGone:
        return
