"""virt-controller: makes launcher Pods for VMIs and hands them to the nodes. One of several copies leads."""

from __future__ import annotations

import json
import os
import socket

import click

from virt_controller.launcher_pod import TemplateConfig
from virt_controller.work import Work
from virt_core.apis import names
from virt_core.kube.client import KubeClient
from virt_core.kube.clusterconfig import follow_log_level
from virt_core.kube.connect import load_connection
from virt_core.kube.leader import LeaderElector
from virt_core.runtime.health import HealthServer
from virt_core.runtime.logs import LEVELS, configure, get_logger
from virt_core.runtime.settings import click_settings
from virt_core.runtime.supervisor import Supervisor

log = get_logger(__name__)

COMPONENT = "virt-controller"


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
    template = TemplateConfig(launcher_image, launcher_pull_policy)
    work = Work(KubeClient(connection, COMPONENT), template, workers, namespace)
    follow_log_level(work.config, "virtController", log_level)
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
