"""A virt-local of its own for a test: own name, port, network and directory, and a look at what it leaves behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
HOST_IMAGE = "virtpod.internal/host:latest"


def free_port() -> int:
    """A port whose two followers (virt-api's, virt-controller's) are free too, below the range for clients."""
    for port in range(20000, 30000, 7):
        if all(_free(each) for each in (port, port + 739, port + 1000)):
            return port
    raise RuntimeError("no free ports")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def eventually(check: Callable[[], Any], within_s: float = 20.0) -> Any:
    deadline = time.monotonic() + within_s
    while not (answer := check()):
        assert time.monotonic() < deadline, f"not within {within_s} s"
        time.sleep(0.05)
    return answer


class Rig:
    def __init__(self, name: str, octet: int, nodes: int = 1) -> None:
        self.name = name
        self.nodes = nodes
        self.data = Path(tempfile.mkdtemp(prefix=f"virt-local-{name}-", dir="/var/tmp"))
        self.port = free_port()
        self.network = f"10.{octet}.0.0/16"
        self.env = {**os.environ, "VIRT_LOCAL_DATA_DIR": str(self.data), "VIRT_LOCAL_INSTANCE": name}
        self.env["KUBECONFIG"] = str(self.data / "kubeconfig" / "admin.yaml")

    def local(self, *args: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        command = [str(BIN / "virt-local"), *args]
        return subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=timeout, check=False)

    def up(self, *more: str) -> subprocess.CompletedProcess[str]:
        flags = ("--port", str(self.port), "--network-cidr", self.network, "--nodes", str(self.nodes))
        return self.local("up", "--detach", "--no-components", *flags, *more)

    def kubectl(self, *args: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            ["kubectl", *args], env=self.env, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        done = self.local("status", "-o", "json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def pids(self) -> dict[str, int]:
        return {row["name"]: row["pid"] for row in self.status()["components"]}

    def supervisor(self) -> int:
        return int((self.data / "run" / "supervisor.lock").read_text().split()[0])

    def run_pod(self, name: str, script: str, **spec: Any) -> None:
        container = {"name": "c", "image": HOST_IMAGE, "command": ["sh", "-c", script]}
        wanted = {"containers": [container], "terminationGracePeriodSeconds": 5, **spec}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": wanted}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=40s")

    def leftovers(self) -> list[str]:
        """What of this instance is still on the machine."""
        left = [f"process {pid}" for pid in _processes(str(self.data))]
        left += [
            f"mount {line.split()[1]}"
            for line in Path("/proc/mounts").read_text().splitlines()
            if str(self.data) in line
        ]
        left += [f"netns {path.name}" for path in Path("/run/netns").glob(f"{self.name}-*")]
        left += [f"link {path.name}" for path in Path("/sys/class/net").glob(f"{self.name}-*")]
        left += [f"cgroup {path}" for path in Path("/sys/fs/cgroup").glob(f"**/virtpod-{self.name}")]
        tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
        left += [f"directory {path}" for path in Path("/run").glob(f"virtpod-dns-{self.name}")]
        own = (f"virtpod_{self.name}", f"virtpod_{self.name}_services")
        return left + [f"nft {line}" for line in tables.splitlines() if line.endswith(own)]


def _processes(text: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in path.read_bytes().decode(errors="replace"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]
