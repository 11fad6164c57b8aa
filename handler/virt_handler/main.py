"""virt-handler: the node's agent. One on every node that runs VMs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from virt_core.apis import names
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.clusterconfig import ConfigWatcher, follow_log_level
from virt_core.kube.connect import load_connection
from virt_core.kube.controller import Controller, Synced
from virt_core.kube.informer import Informer
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.clock import SystemClock
from virt_core.runtime.health import HealthServer
from virt_core.runtime.logs import LEVELS, configure, get_logger
from virt_core.runtime.settings import click_settings
from virt_core.runtime.supervisor import Supervisor
from virt_handler import node_service
from virt_handler.attachment import Attachments
from virt_handler.controller import HandlerController, Parts
from virt_handler.network import NetworkWiring
from virt_handler.node.capabilities import NodeCapabilities
from virt_handler.node.heartbeat import Heartbeat
from virt_handler.podfiles import PodFiles
from virt_handler.records import GhostRecord, NetworkRecord, RecordStore
from virt_handler.sessions import Session, Sessions
from virt_handler.watcher import Watcher

log = get_logger(__name__)

COMPONENT = "virt-handler"
#: The loop never waits for a guest, so a few are enough for a burst.
WORKERS = 6


class Handler:
    """The parts of virt-handler, put together."""

    def __init__(
        self,
        client: KubeClient,
        node_name: str,
        pods_dir: str,
        node_info_dir: str,
        state_dir: str,
        *,
        namespace: str = names.INSTALL_NAMESPACE,
    ) -> None:
        self.client, self.node_name = client, node_name
        self.clock = SystemClock()
        self.queue = WorkQueue(self.clock, "vmi", max_delay_s=30.0)
        self.vmis = Informer(client, VirtualMachineInstance, label_selector=f"{names.LABEL_NODE_NAME}={node_name}")
        self.recorder = EventRecorder(client, COMPONENT, node_name, clock=self.clock)
        self.sessions = Sessions()
        self.files = PodFiles(pods_dir)
        self.watcher = Watcher()
        self.capabilities = NodeCapabilities(node_info_dir)
        self.config = ConfigWatcher(client, namespace)
        self.attachments = Attachments(self.files, self.watcher, self.queue, self.tell)
        self._state = Path(state_dir)

    def controller(self, netsetup_command: str) -> HandlerController:
        wiring = NetworkWiring(
            shlex.split(netsetup_command),
            state_dir=str(self._state / "netsetup"),
            records=RecordStore(str(self._state / "network"), NetworkRecord),
            clock=self.clock,
            done=lambda session: self.queue.add(session.key),
        )
        self.network = wiring
        return HandlerController(
            Parts(
                client=self.client,
                vmis=self.vmis,
                queue=self.queue,
                recorder=self.recorder,
                clock=self.clock,
                node_name=self.node_name,
                sessions=self.sessions,
                ghosts=RecordStore(str(self._state / "ghosts"), GhostRecord),
                attachments=self.attachments,
                network=wiring,
                capabilities=self.capabilities,
                config=self.config.current,
            )
        )

    def close(self) -> None:
        """Lets go of the launchers; they and their guests go on."""
        self.network.close()
        for session in self.sessions:
            self.attachments.close(session)

    def tell(self, session: Session, kind: str, reason: str, message: str) -> None:
        """A launcher's own Event, on the VMI of its session."""
        vmi = self.vmis.get(session.key)
        if vmi is not None and vmi.metadata.uid == session.vmi_uid:
            self.recorder.event(vmi, kind, reason, message)


@click.command(context_settings=click_settings(COMPONENT))
@click.option("--kubeconfig", help="Path of a kubeconfig; by default the Pod's own service account.")
@click.option("--namespace", default=names.INSTALL_NAMESPACE, help="Where Virtpod is installed.")
@click.option("--node-name", required=True, help="Name of this node.")
@click.option("--listen", default="0.0.0.0:8186", help="Address of the node service for virt-api.")
@click.option("--advertise", default="", help="Address under which virt-api reaches it, if it is another one.")
@click.option("--tls-dir", required=True, help="Directory with tls.crt, tls.key and ca.crt of the node service.")
@click.option("--pods-dir", default="/var/lib/kubelet/pods", help="Where the node keeps the volumes of its Pods.")
@click.option("--node-info-dir", default="/var/lib/virtpod/node-info", help="What the node's probe found out.")
@click.option("--state-dir", default="/var/lib/virtpod/handler", help="Where this program keeps its records.")
@click.option("--health-listen", default="127.0.0.1:8183", help="Address of /healthz, /readyz and /metrics.")
@click.option("--netsetup-command", default="virt-netsetup", help="The program that wires the network of a Pod.")
@click.option("--log-level", default="info", type=click.Choice(list(LEVELS)), help="Least level to log.")
def main(
    *,
    kubeconfig: str | None,
    namespace: str,
    node_name: str,
    listen: str,
    advertise: str,
    tls_dir: str,
    pods_dir: str,
    node_info_dir: str,
    state_dir: str,
    health_listen: str,
    netsetup_command: str,
    log_level: str,
) -> None:
    """Runs the VMs of one node."""
    configure(COMPONENT, log_level)
    # Launchers run as another user and must reach the sockets that we make for them; every file of ours names its mode.
    os.umask(0)
    client = KubeClient(load_connection(kubeconfig), COMPONENT)
    handler = Handler(client, node_name, pods_dir, node_info_dir, state_dir, namespace=namespace)
    follow_log_level(handler.config, "virtHandler", log_level, node_name)
    controller = handler.controller(netsetup_command)
    tls = TlsFiles(tls_dir)
    servicer = node_service.NodeServicer(node_name, handler.sessions, handler.files, tls=tls)
    server = node_service.serve(listen, tls, servicer)
    health = HealthServer(health_listen, {"vmis": lambda: handler.vmis.has_synced() or "waiting for the first list"})
    heartbeat = Heartbeat(
        client, node_name, advertise or listen, handler.capabilities, handler.clock, handler.config.current
    )
    controller.restore()
    supervisor = Supervisor(COMPONENT)
    supervisor.thread("health", health.run)
    supervisor.thread("config", handler.config.run)
    supervisor.thread("informer-vmis", handler.vmis.run)
    supervisor.thread("events", handler.recorder.run)
    supervisor.thread("watcher", handler.watcher.run)
    supervisor.thread("node-service", server.run)
    supervisor.thread("heartbeat", heartbeat.run)
    synced: list[Synced] = [handler.vmis, handler.config]
    supervisor.thread("controller", Controller("vmi", handler.queue, controller.reconcile, WORKERS, synced).run)
    supervisor.on_stop(handler.close)
    log.info("started", node=node_name, listen=listen, kvm=handler.capabilities.kvm)
    supervisor.run_and_exit()
