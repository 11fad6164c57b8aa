"""virt-controller: makes launcher Pods for VMIs and hands them to the nodes. One of several copies leads."""

from __future__ import annotations

import json
import os
import socket
import threading

import click

from virt_controller.launcher_pod import TemplateConfig
from virt_controller.node.controller import NodeController
from virt_controller.vmi.controller import (
    OWNER_INDEX,
    VMIController,
    owner_indexer,
    pod_without_managed_fields,
    without_managed_fields,
)
from virt_core.apis import names
from virt_core.apis.nodes import Node
from virt_core.apis.pods import Pod
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.connect import load_connection
from virt_core.kube.controller import Controller, Synced
from virt_core.kube.informer import Informer
from virt_core.kube.leader import LeaderElector
from virt_core.kube.recorder import EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import SystemClock
from virt_core.runtime.health import HealthServer
from virt_core.runtime.logs import LEVELS, configure, get_logger
from virt_core.runtime.settings import click_settings
from virt_core.runtime.supervisor import Supervisor

log = get_logger(__name__)

COMPONENT = "virt-controller"


class Work:
    """Everything that only the leader does."""

    def __init__(self, client: KubeClient, template: TemplateConfig, workers: int) -> None:
        clock = SystemClock()
        self._recorder = EventRecorder(client, COMPONENT, clock=clock)
        self._vmis = Informer(client, VirtualMachineInstance, transform=without_managed_fields)
        self._pods = Informer(
            client,
            Pod,
            label_selector=f"{names.LABEL_APP}={names.APP_LAUNCHER}",
            indexers={OWNER_INDEX: owner_indexer},
            transform=pod_without_managed_fields,
        )
        self._nodes = Informer(client, Node)
        vmi_queue, node_queue = WorkQueue(clock, "vmi", max_delay_s=60.0), WorkQueue(clock, "node")
        vmi = VMIController(
            client,
            queue=vmi_queue,
            vmis=self._vmis,
            pods=self._pods,
            nodes=self._nodes,
            recorder=self._recorder,
            template=template,
            clock=clock,
        )
        node = NodeController(client, queue=node_queue, nodes=self._nodes, recorder=self._recorder, clock=clock)
        informers: list[Synced] = [self._vmis, self._pods, self._nodes]
        self._controllers = [
            Controller("vmi", vmi_queue, vmi.reconcile, workers, informers),
            Controller("node", node_queue, node.reconcile, 1, [self._nodes]),
        ]

    def run(self, work_stop: threading.Event) -> None:
        """Blocks until the stop; raises when one of its threads dies."""
        inner = Supervisor("leader", grace_s=9.0)
        inner.thread("informer-vmis", self._vmis.run)
        inner.thread("informer-pods", self._pods.run)
        inner.thread("informer-nodes", self._nodes.run)
        inner.thread("events", self._recorder.run)
        for controller in self._controllers:
            inner.thread(f"controller-{controller.name}", controller.run)

        def stop_with_lead() -> None:
            work_stop.wait()
            inner.request_stop()

        threading.Thread(target=stop_with_lead, name="work-stop", daemon=True).start()
        if inner.run(signals=False) and not work_stop.is_set():
            raise RuntimeError("a controller ended, see the log")

    def ready(self) -> str | None:
        late = [i for i in (self._vmis, self._pods, self._nodes) if not i.has_synced()]
        return "waiting for the first lists" if late else None


@click.command(context_settings=click_settings(COMPONENT))
@click.option("--kubeconfig", help="Path of a kubeconfig; by default the Pod's own service account.")
@click.option("--namespace", default=names.INSTALL_NAMESPACE, help="Namespace of the Lease.")
@click.option("--launcher-image", required=True, help="Image of the launcher Pods.")
@click.option("--launcher-pull-policy", default="IfNotPresent", help="Pull policy of that image.")
@click.option("--health-listen", default="127.0.0.1:8182", help="Address of /healthz, /readyz, /leader and /metrics.")
@click.option("--leader-elect/--no-leader-elect", default=True, help="Stand for election before working.")
@click.option("--lease-duration", default=15.0, help="Seconds after which a silent leader is replaced.")
@click.option("--renew-deadline", default=10.0, help="Seconds in which the leader must renew its lease.")
@click.option("--retry-period", default=2.0, help="Seconds between attempts.")
@click.option("--workers", default=8, help="VMIs that are worked on at once.")
@click.option("--log-level", default="info", type=click.Choice(list(LEVELS)), help="Least level to log.")
def main(
    *,
    kubeconfig: str | None,
    namespace: str,
    launcher_image: str,
    launcher_pull_policy: str,
    health_listen: str,
    leader_elect: bool,
    lease_duration: float,
    renew_deadline: float,
    retry_period: float,
    workers: int,
    log_level: str,
) -> None:
    """Runs the controllers of the cluster."""
    configure(COMPONENT, log_level)
    connection = load_connection(kubeconfig)
    work = Work(KubeClient(connection, COMPONENT), TemplateConfig(launcher_image, launcher_pull_policy), workers)
    supervisor = Supervisor(COMPONENT)
    elector: LeaderElector | None = None
    if leader_elect:
        elector = LeaderElector(
            # A client of its own: what the controllers do must never keep the lease waiting.
            KubeClient(connection, COMPONENT, timeout_s=retry_period * 2),
            namespace,
            names.LEASE_CONTROLLER,
            f"{socket.gethostname()}_{os.getpid()}",
            work.run,
            lease_duration_s=lease_duration,
            renew_deadline_s=renew_deadline,
            retry_period_s=retry_period,
        )
    leads = elector.is_leader if elector is not None else lambda: True
    health = HealthServer(
        health_listen,
        # A copy that stands by is ready too: it could take over at any moment.
        {"caches": lambda: work.ready() if leads() else None},
        pages={"/leader": lambda: json.dumps({"apiserver": {"leader": str(leads()).lower()}})},
    )
    supervisor.thread("health", health.run)
    supervisor.thread("leader", elector.run if elector is not None else work.run)
    log.info("started", server=connection.server, leader_elect=leader_elect, launcher_image=launcher_image)
    supervisor.run_and_exit()
