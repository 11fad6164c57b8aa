"""A node whose virt-handler is a process of its own, and whose Pods are real cgroups with processes of uid 107.

Only the API server and what is inside the launchers are fakes.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest
from framework.certs import CertAuthority
from framework.fake_kube import FakeKube
from framework.vmis import NODE, plain_vmi
from framework.waiting import eventually

from virt_core.apis import names

from .test_cgroups import hierarchy

_PROGRAM = Path(__file__).with_name("podprocess.py")
_VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
NOBODY = 65534


class Pod:
    """A launcher Pod with its VMI."""

    def __init__(self, node: RealNode, name: str) -> None:
        self.node, self.name, self.uid, self.vmi_uid = node, name, str(uuid.uuid4()), str(uuid.uuid4())
        place = hierarchy()
        if place is None:
            pytest.skip("no writable cgroup hierarchy here")
        self.cgroup = place / f"pod{self.uid}"
        self.cgroup.mkdir()
        volumes = node.pods / self.uid / names.EMPTY_DIR_SEGMENT
        self.sockets = volumes / names.VOLUME_SOCKETS
        self.sockets.mkdir(parents=True)
        self.sockets.chmod(0o777)
        (volumes / "private" / self.vmi_uid).mkdir(parents=True)
        self.launcher: subprocess.Popen[str] | None = None

    def hand_over(self) -> None:
        """Its VMI as virt-controller leaves it; without a network, which is another matter."""
        plain = plain_vmi(
            self.name,
            names.PHASE_SCHEDULED,
            metadata={"uid": self.vmi_uid, "labels": {names.LABEL_NODE_NAME: NODE}},
            status={"nodeName": NODE, "activePods": {self.uid: NODE}, "handoffs": []},
        )
        plain["spec"]["domain"]["devices"] |= {"interfaces": [], "autoattachPodInterface": False}
        plain["spec"]["networks"] = []
        self.node.kube.put(f"{_VMIS}/{self.name}", plain)

    def launch(self) -> None:
        """Starts its launcher, and waits until it serves."""
        self.launcher = self.run("launcher", self.vmi_uid)
        assert self.launcher.stdout is not None
        assert self.launcher.stdout.readline() == "ready\n"

    def start(self) -> None:
        self.launch()
        self.hand_over()

    def run(self, *act: str, uid: int = names.LAUNCHER_UID, inside: bool = True) -> subprocess.Popen[str]:
        """A process of this Pod, or (not `inside`) one of the node that got at its volume."""
        cgroup = str(self.cgroup) if inside else "-"
        command = [sys.executable, str(_PROGRAM), cgroup, str(self.sockets), str(uid), *act]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.node.processes.append(process)
        return process

    def says(self, *act: str, **who: Any) -> str:
        process = self.run(*act, **who)
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def asked_in_vain(self) -> bool:
        """Whether virt-handler has given up a call to its launcher."""
        lines = [line for line in self.node.log().splitlines() if "the launcher does not answer" in line]
        return any(f'"default/{self.name}"' in line for line in lines)

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.node.kube.objects[f"{_VMIS}/{self.name}"]["status"]
        return found

    def phase(self, wanted: str, within_s: float = 30.0) -> None:
        eventually(lambda: self.status["phase"] == wanted, within_s)


class RealNode:
    def __init__(self, root: Path, kube: FakeKube) -> None:
        self.root, self.kube = root, kube
        self.pods = root / "pods"
        self.pods.mkdir()
        self.all: list[Pod] = []
        self.processes: list[subprocess.Popen[str]] = []
        self.handler: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._health = free.getsockname()[1]
        kube.put(f"/api/v1/nodes/{NODE}", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})

    def pod(self, name: str) -> Pod:
        made = Pod(self, name)
        self.all.append(made)
        return made

    def serve(self, files: int) -> None:
        """Starts virt-handler with room for so many open files, and waits until it is ready."""
        tls = CertAuthority().issue("virt-handler", names.tls_name_node(NODE)).write(self.root / "tls")
        flags = {
            "kubeconfig": self._kubeconfig(),
            "node-name": NODE,
            "listen": "127.0.0.1:0",
            "tls-dir": tls,
            "pods-dir": self.pods,
            "device-plugin-dir": "",
            "node-info-dir": self.root / "info",
            "state-dir": self.root / "state",
            "health-listen": f"127.0.0.1:{self._health}",
        }
        program = Path(sys.executable).with_name("virt-handler")
        with (self.root / "log").open("wb") as log:
            self.handler = subprocess.Popen(
                [str(program), *(f"--{name}={value}" for name, value in flags.items())],
                stdout=log,
                stderr=log,
            )
        self.allow_files(files)
        eventually(lambda: "started" in self.log(), within_s=30)

    def allow_files(self, soft: int) -> None:
        assert self.handler is not None
        _, hard = resource.prlimit(self.handler.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.handler.pid, resource.RLIMIT_NOFILE, (soft, hard))

    def _kubeconfig(self) -> Path:
        path = self.root / "kubeconfig"
        server = f"http://127.0.0.1:{self.kube.port}"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {}}],
        }
        path.write_text(json.dumps(config))
        return path

    def reconciles_longer_than(self, bucket: str) -> int:
        """How often the loop was busy with one VMI for longer, by virt-handler's own count."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._health}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.findall(r'^virt_reconcile_seconds_bucket\{controller="vmi",le="([^"]+)"\} (\d+)', text, re.MULTILINE)
        counts = {bound: int(count) for bound, count in found}
        return counts["+Inf"] - counts[bucket]

    def log(self) -> str:
        return (self.root / "log").read_text(errors="replace")

    @property
    def alive(self) -> bool:
        return self.handler is not None and self.handler.poll() is None

    def open_files(self) -> int:
        assert self.handler is not None
        return len(os.listdir(f"/proc/{self.handler.pid}/fd"))

    def close(self) -> None:
        if self.handler is not None:
            self.handler.terminate()
            try:
                self.handler.wait(20)
            except subprocess.TimeoutExpired:
                self.handler.kill()
                self.handler.wait(5)
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(5)
            assert process.stdout is not None
            process.stdout.close()
        for pod in self.all:
            eventually(lambda pod=pod: not (pod.cgroup / "cgroup.procs").read_text())  # type: ignore[misc]
            pod.cgroup.rmdir()
