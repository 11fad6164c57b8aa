"""What Multus and its dynamic networks controller do on a cluster, for this one, where they cannot be had.

One process on each node looks at the annotations of the node's Pods, calls the CNI plugins of the networks that they
ask for in the Pods' namespaces, also when an annotation changes later, and writes what they have into the other
annotation. It is no plugin of the Pod network: that one would have to be started for every Pod, whether it asks for
networks or not. So a Pod gets its networks a moment after it started, as from a slow plugin.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, Protocol

from virt_core.apis import names
from virt_core.apis.pods import Pod, PodStatus
from virt_core.kube.client import KubeClient
from virt_core.kube.connect import load_connection
from virt_core.kube.controller import Controller, Result
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.logs import get_logger
from virt_core.runtime.supervisor import Supervisor
from virt_handler.pods.isolation import NoNamespaceError, open_netns
from virt_local.node import kernel, users
from virt_local.node.api import ApiObjects, ApiPods
from virt_local.node.cni import CniSettings, Plugins
from virt_local.node.layout import NodeLayout, remove_tree
from virt_local.node.networks.keeper import PodNetworks
from virt_local.node.networks.vocabulary import NetworkError
from virt_local.node.pods.view import POD_PHASES_ENDED

from .configs import CNI_DIRS

log = get_logger(__name__)

#: In the node, whose /var/lib/cni is its own.
STATE = Path("/var/lib/cni/virtpod-networks")
USER = "virtpod:networks"
ROLE = f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: "{USER}"}}
rules:
- {{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}}
- {{apiGroups: [""], resources: [pods/status], verbs: [patch]}}
- {{apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], verbs: [get]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: "{USER}"}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "{USER}"}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: "{USER}"}}]
"""
_RETRY_S = 0.2
_FAILED_S = 3.0
_SYNC_POLL_S = 0.05


class Pods(Protocol):
    def get(self, uid: str) -> Pod | None: ...
    def publish(self, pod: Pod, status: PodStatus, annotations: dict[str, str] | None = None) -> Pod: ...


class Agent:
    def __init__(self, layout: NodeLayout, pods: Pods, networks: PodNetworks, netns_of: Callable[[str], int]) -> None:
        """`netns_of` opens the network namespace of a Pod; raises LookupError while it has none."""
        self._layout, self._pods, self._networks, self._netns_of = layout, pods, networks, netns_of

    def known(self) -> list[str]:
        """Pods that had networks before this process began; some may be gone meanwhile."""
        return [path.name for path in self._layout.sandboxes.iterdir()]

    def reconcile(self, uid: str) -> Result | None:
        pod = self._pods.get(uid)
        if pod is None or pod.status.phase in POD_PHASES_ENDED:
            self._forget(uid)
            return None
        asked = pod.metadata.annotations.get(names.ANNOTATION_NETWORKS, "")
        if pod.spec.host_network or not (asked or self._layout.sandbox(uid).exists()):
            return None
        if not self._hold(uid):
            return Result(_RETRY_S)
        try:
            self._networks.follow(pod)
        except NetworkError as error:
            log.warning("a Pod cannot have its networks", pod=pod.metadata.name, error=str(error))
            self._tell(pod)
            return Result(_FAILED_S)
        self._tell(pod)
        return None

    def _hold(self, uid: str) -> bool:
        """Keeps the Pod's namespace under a name, so that what is in it can be taken back when the Pod has ended."""
        path = self._layout.netns(uid)
        if kernel.mounts_below(path):
            return True
        try:
            descriptor = self._netns_of(uid)
        except LookupError:
            return False
        try:
            self._layout.sandbox(uid).mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            kernel.bind(f"/proc/self/fd/{descriptor}", str(path))
        finally:
            os.close(descriptor)
        return True

    def _tell(self, pod: Pod) -> None:
        annotations, key = pod.metadata.annotations, names.ANNOTATION_NETWORK_STATUS
        told = self._networks.told(pod, [each.ip for each in pod.status.pod_ips])
        if told != annotations.get(key, ""):
            rest = {name: value for name, value in annotations.items() if name != key}
            self._pods.publish(pod, pod.status, rest | ({key: told} if told else {}))

    def _forget(self, uid: str) -> None:
        if not self._layout.sandbox(uid).exists():
            return
        self._networks.detach(uid)
        users.forget(self._layout.netns(uid))
        remove_tree(self._layout.sandbox(uid))


def _open(uid: str) -> int:
    try:
        return open_netns(uid).fd
    except NoNamespaceError as error:
        raise LookupError(str(error)) from error


def run(kubeconfig: Path, node: str) -> NoReturn:
    """Must be started in the node. Works until SIGTERM."""
    layout = NodeLayout(STATE)
    layout.make()
    client = KubeClient(load_connection(str(kubeconfig)), user_agent=f"virtpod-networks/{node}")
    pods, queue = ApiPods(client, node), WorkQueue(name="networks")
    plugins = Plugins(CniSettings("pods", "", (), layout.ipam, CNI_DIRS))
    agent = Agent(layout, pods, PodNetworks(layout, plugins, ApiObjects(client)), _open)
    pods.on_change(queue.add)
    controller = Controller("networks", queue, agent.reconcile, workers=2)

    def work(stop: threading.Event) -> None:
        while not pods.synced():
            if stop.wait(_SYNC_POLL_S):
                return
        for uid in agent.known():
            queue.add(uid)
        controller.run(stop)

    supervisor = Supervisor(f"networks-{node}")
    supervisor.thread("informer", pods.run)
    supervisor.thread("networks", work)
    supervisor.on_stop(queue.shutdown)
    supervisor.run_and_exit()
