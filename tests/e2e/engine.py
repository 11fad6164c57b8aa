"""The engine that the end-to-end tests run on: they know kubectl, virtctl and what this module offers, nothing else.

`VirtLocal` starts a virt-local of its own (own instance name, port, data directory) and takes it down again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.framework.quickget import QuickGet

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
GUEST_LAYOUT = ROOT / ".build" / "guest"
GUEST_IMAGE = "virtpod.internal/guest:v1"


def eventually(check: Callable[[], Any], *, within_s: float, what: str = "") -> Any:
    """Calls `check` until it returns something true; fails with its last answer or error after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    last: Any = None
    while True:
        try:
            last = check()
            if last:
                return last
        except (AssertionError, OSError, KeyError, LookupError, subprocess.SubprocessError) as error:
            last = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {what or check}; last: {last!r}")
        time.sleep(0.1)


#: What virt-local takes beside its port; all of it below the range from which outgoing connections get theirs.
_BESIDE = (0, 739, 1000, 1001)


def free_port() -> int:
    """A port for virt-local such that the ports that follow from it are free as well."""
    for _ in range(100):
        port = random.randrange(20000, 31000)
        if all(_is_free(port + step) for step in _BESIDE):
            return port
    raise AssertionError("no free ports between 20000 and 32000")


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def process_table() -> Iterator[tuple[int, list[str]]]:
    """All processes with their command lines."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            args = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if args and args[0]:
                yield int(entry.name), args


class Engine:
    """What tests may do with a running system."""

    kubeconfig: str
    #: A port of the machine that guests may call; 0: any.
    open_port = 0
    _quick: QuickGet | None = None

    def env(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": self.kubeconfig, "PATH": f"{BIN}:{os.environ['PATH']}"}

    def automation(self) -> str:
        """A kubeconfig that says where automation/v1 is now."""
        return self.kubeconfig

    def run(self, *args: str, stdin: str | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            args, input=stdin, capture_output=True, text=True, timeout=timeout, env=self.env(), check=False, cwd=ROOT
        )

    def kubectl(self, *args: str, stdin: str | None = None, timeout: float = 60) -> str:
        done = self.run("kubectl", *args, stdin=stdin, timeout=timeout)
        assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr}{done.stdout}"
        return done.stdout

    def get(self, *args: str) -> Any:
        """As `kubectl get -o json`."""
        if self._quick is None or self._quick.kubeconfig != self.kubeconfig:
            self._quick = QuickGet(self.kubeconfig)
        try:
            return self._quick(*args)
        except LookupError:
            return json.loads(self.kubectl("get", *args, "-o", "json"))

    def virtctl(self, *args: str, timeout: float = 60) -> str:
        done = self.run("virtctl", *args, timeout=timeout)
        assert done.returncode == 0, f"virtctl {' '.join(args)}: {done.stderr}{done.stdout}"
        return done.stdout

    def launcher_pid(self, vmi_uid: str) -> int:
        for pid, args in process_table():
            if any(a.endswith("virt-launcher") for a in args[:3]) and any(vmi_uid in a for a in args):
                return pid
        raise LookupError(f"no virt-launcher of {vmi_uid}")

    def qemu_pid(self, namespace: str, name: str) -> int:
        for pid, args in process_table():
            if "qemu-system" in args[0] and any(a.startswith(f"guest={namespace}_{name},") for a in args):
                return pid
        raise LookupError(f"no QEMU of {namespace}/{name}")

    def component_pids(self, component: str) -> list[int]:
        raise NotImplementedError

    def handler_pid(self, node: str) -> int:
        """The virt-handler of one node, which was told the node's name as an argument or in its environment."""
        for pid in self.component_pids("virt-handler"):
            told = b"".join(Path(f"/proc/{pid}/{file}").read_bytes() for file in ("cmdline", "environ"))
            if any(word.rpartition(b"=")[2] == node.encode() for word in told.split(b"\0")):
                return pid
        raise LookupError(f"no virt-handler of {node}")

    def log_of(self, component: str) -> str:
        """What a service has said since it started."""
        raise NotImplementedError

    def writes(self) -> dict[str, int]:
        """Stored changes by resource, as the API server counts them."""
        raise NotImplementedError

    def take_image(self, layout: Path, name: str) -> None:
        """Makes an image known to every node."""
        raise NotImplementedError

    def drop_namespace(self, namespace: str) -> None:
        self.kubectl("delete", "namespace", namespace, "--timeout=90s", timeout=120)

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def leftovers(self) -> list[str]:
        raise NotImplementedError

    def kill_component(self, component: str) -> None:
        """kill -9, and wait until other processes have taken its place."""
        old = self.component_pids(component)
        assert old, f"{component} does not run"
        for pid in old:
            os.kill(pid, signal.SIGKILL)
        eventually(
            lambda: (new := self.component_pids(component)) and not set(new) & set(old),
            within_s=30,
            what=f"{component} restarted",
        )


def _second_octet(letter: str) -> int:
    """Of the network of a virt-local: another for each worker of a run, and there for each that is up at a time: the
    one of the session, its pair of nodes, and one more."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    run = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    return 180 + (8 * run + 3 * worker + {"e": 0, "p": 1}.get(letter, 2)) % 60


class VirtLocal(Engine):
    """A virt-local of our own."""

    open_port = 53

    def __init__(self, nodes: int = 1, letter: str = "e") -> None:
        # Names and addresses of its own, so that runs side by side do not meet.
        self.instance = instance = f"{letter}{os.getpid() % 1000}"
        self.nodes = nodes
        self.data = Path(tempfile.mkdtemp(prefix=f"virtpod-{instance}-", dir="/var/tmp"))
        self.port = free_port()
        self.network = f"10.{_second_octet(letter)}.0.0/16"
        self.kubeconfig = str(self.data / "kubeconfig" / "admin.yaml")

    def _local(self, *args: str, timeout: float = 400) -> subprocess.CompletedProcess[str]:
        env = {**self.env(), "VIRT_LOCAL_DATA_DIR": str(self.data), "VIRT_LOCAL_INSTANCE": self.instance}
        return subprocess.run(
            [str(BIN / "virt-local"), *args], capture_output=True, text=True, timeout=timeout, env=env, check=False
        )

    def start(self) -> None:
        up = ["up", "--detach", "--port", str(self.port), "--network-cidr", self.network, "--nodes", str(self.nodes)]
        done = self._local(*up)
        assert done.returncode == 0, done.stdout + done.stderr
        self.take_image(GUEST_LAYOUT, GUEST_IMAGE)

    def take_image(self, layout: Path, name: str) -> None:
        done = self._local("image", "import", str(layout), "--name", name)
        assert done.returncode == 0, done.stdout + done.stderr

    def stop(self) -> None:
        done = self._local("down", "--purge")
        shutil.rmtree(self.data, ignore_errors=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def status(self) -> Any:
        done = self._local("status", "-o", "json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def component_pids(self, component: str) -> list[int]:
        rows = self.status()["components"]
        return [row["pid"] for row in rows if row["name"].split("@")[0] == component and row["pid"]]

    def log_of(self, component: str) -> str:
        return "".join(path.read_text() for path in (self.data / "logs").glob(f"{component}*.log"))

    def writes(self) -> dict[str, int]:
        text = self.kubectl("get", "--raw", "/metrics")
        counts: dict[str, int] = {}
        for resource, count in re.findall(r'virt_local_object_writes_total\{resource="([^"]+)",[^}]*\} (\d+)', text):
            kind = resource.split(".")[0]
            counts[kind] = counts.get(kind, 0) + int(count)
        return counts

    def leftovers(self) -> list[str]:
        """What of this instance is still on the machine: processes, mounts, network namespaces, links, cgroups."""
        data = str(self.data)
        left = [f"process {pid}: {' '.join(args)[:120]}" for pid, args in process_table() if data in " ".join(args)]
        left += [f"mount {line.split()[1]}" for line in Path("/proc/mounts").read_text().splitlines() if data in line]
        netns = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        left += [f"netns {line}" for line in netns.splitlines() if line.startswith(self.instance + "-")]
        links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
        left += [f"link {line.split()[0]}" for line in links.splitlines() if line.startswith(self.instance + "-")]
        left += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob(f"**/virtpod-{self.instance}")]
        left += [f"directory {path}" for path in Path("/run").glob(f"virtpod-dns-{self.instance}")]
        return left
