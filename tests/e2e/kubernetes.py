"""The engine for a real Kubernetes: the cluster of tests/cluster, or whatever $KUBECONFIG points at.

On a cluster of our own the fault tests kill real processes. On somebody else's there are no process numbers to be had;
what needs them is skipped there.
"""

from __future__ import annotations

import base64
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import Cluster
from tests.framework.apimetrics import granted_writes

from .engine import Engine, eventually, process_table

NAMESPACE = "virtpod"
#: What the fault tests call the parts of an engine, in the words of Kubernetes.
_PARTS = {"apiserver": ("apiserver",), "node": ("kubelet",), "controllers": ("controller-manager", "scheduler")}
_SERVICES = ("virt-api", "virt-controller", "virt-handler")


class Kubernetes(Engine):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._work = tempfile.TemporaryDirectory(prefix="virtpod-e2e-")
        self.kubeconfig = str(cluster.kubeconfig)

    def start(self) -> None:
        """Waits until Virtpod is Ready, and notes where its automation service is."""
        for kind, name in (
            ("deployment", "virt-controller"),
            ("deployment", "virt-api"),
            ("daemonset", "virt-handler"),
        ):
            self.kubectl("-n", NAMESPACE, "rollout", "status", f"{kind}/{name}", "--timeout=120s", timeout=140)
        self.kubeconfig = str(self._with_automation())

    def automation(self) -> str:
        """Other tests may have had virt-api's Pods replaced since the start."""
        return str(self._with_automation())

    def stop(self) -> None:
        """The cluster outlives the tests; of ours nothing stays, machines and Pods included."""
        eventually(lambda: not self._spaces(), within_s=180, what="no namespace of a test left")
        self.kubeconfig = str(self.cluster.kubeconfig)
        self._work.cleanup()

    def leftovers(self) -> list[str]:
        return [f"namespace {name}" for name in self._spaces()]

    def component_pids(self, component: str) -> list[int]:
        if not self.cluster.owned:
            pytest.skip("needs the processes of the cluster, which is not ours")
        if component not in _SERVICES:
            return [pid for part in _PARTS[component] for pid in self.cluster.pids(part)]
        # Those of a virt-local or of another cluster beside us have other control groups.
        ours = self.cluster.layout.cgroup
        return sorted(pid for pid, args in process_table() if _is_program(args, component) and _is_in(pid, ours))

    def own_pids(self) -> list[int]:
        """Of everything in a Pod of this cluster."""
        return [pid for pid, _ in process_table() if _is_in(pid, self.cluster.layout.cgroup)]

    def log_of(self, component: str) -> str:
        select = ("-l", f"kubevirt.io={component}", "--tail=-1", "--prefix=false")
        return self.kubectl("-n", NAMESPACE, "logs", *select, "-c", component)

    def writes(self) -> dict[str, int]:
        """The counters know no namespaces, so what other tests left behind must be gone first."""
        eventually(lambda: len(self._spaces()) <= 1, within_s=180, what="no namespace but this test's")
        return granted_writes(self.kubectl("get", "--raw", "/metrics"))

    def take_image(self, layout: Path, name: str) -> None:
        if not self.cluster.owned:
            pytest.skip("needs an image on the nodes of a cluster that is not ours")
        self.cluster.load(layout, name=name)

    def drop_namespace(self, namespace: str) -> None:
        """Kubernetes takes its time over a namespace, which the next test need not wait for."""
        self.kubectl("delete", "namespace", namespace, "--wait=false")

    def _spaces(self) -> list[str]:
        """Namespaces of this run's tests; another run beside it has its own."""
        names = [item["metadata"]["name"] for item in self.get("namespaces")["items"]]
        return [name for name in names if name.startswith(f"e2e-{os.getpid()}-")]

    def _with_automation(self) -> Path:
        """A kubeconfig that also says where automation/v1 is, for `virt_client`."""
        config = json.loads(self.kubectl("config", "view", "--raw", "--flatten", "-o", "json"))
        config["clusters"][0]["cluster"]["extensions"] = [
            {"name": "virtpod.io/automation", "extension": self._automation()}
        ]
        path = Path(self._work.name, "kubeconfig")
        path.touch(mode=0o600)
        path.write_text(json.dumps(config))
        return path

    def _automation(self) -> dict[str, str]:
        pods = self.get("-n", NAMESPACE, "pods", "-l", "kubevirt.io=virt-api")["items"]
        address = next(pod["status"]["podIP"] for pod in pods if _serves(pod))
        bundle = self.get("apiservice", "v1.subresources.kubevirt.io")["spec"]["caBundle"]
        assert b"BEGIN CERTIFICATE" in base64.b64decode(bundle), "the APIService trusts nobody"
        name = f"virt-api.{NAMESPACE}.svc"
        return {"address": f"{address}:8444", "certificate-authority-data": bundle, "tls-server-name": name}


def _serves(pod: Any) -> bool:
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", []))
    return ready and "deletionTimestamp" not in pod["metadata"]


def attach() -> Kubernetes:
    """To the cluster that the environment names."""
    return Kubernetes(Cluster.from_environment())


def wanted() -> bool:
    return os.environ.get("VIRTPOD_ENGINE", "virt-local") == "kubernetes"


def _is_program(args: list[str], name: str) -> bool:
    return any(Path(word).name == name for word in args[:4] if word.startswith("/"))


def _is_in(pid: int, cgroup: str) -> bool:
    """Whether the process is in a Pod below this control group."""
    try:
        return re.search(f"/{re.escape(cgroup)}/.*kubepods", Path(f"/proc/{pid}/cgroup").read_text()) is not None
    except OSError:
        return False
