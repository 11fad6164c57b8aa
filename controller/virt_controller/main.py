"""virt-controller: makes launcher Pods for VMIs and hands them to the nodes. One of several copies leads."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from virt_controller.export.entrance import Entrance
from virt_controller.launcher_pod import TemplateConfig
from virt_controller.leader import Leader
from virt_controller.uninstall import check_option
from virt_core.apis import names
from virt_core.kube.client import KubeClient
from virt_core.kube.clusterconfig import follow_log_level
from virt_core.kube.connect import load_connection
from virt_core.kube.leader import LeaderElector
from virt_core.runtime.clock import SystemClock
from virt_core.runtime.health import Check, HealthServer
from virt_core.runtime.logs import LEVELS, configure, get_logger
from virt_core.runtime.metrics import REGISTRY
from virt_core.runtime.settings import click_settings, duration
from virt_core.runtime.supervisor import Supervisor

if TYPE_CHECKING:
    from virt_controller.certificates.controller import CertificateController

log = get_logger(__name__)

COMPONENT = "virt-controller"


def _lifetime(_context: click.Context, _parameter: click.Parameter, text: str) -> timedelta:
    try:
        return duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _outside(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    parts = urlsplit(text)
    if text and (parts.scheme != "https" or not parts.netloc or parts.query or parts.fragment):
        raise click.BadParameter(f"{text!r} is not https://HOST[:PORT]")
    return text.rstrip("/")


@click.command(context_settings=click_settings(COMPONENT))
@click.option("--kubeconfig", help="Path of a kubeconfig. Default: the Pod's own service account.")
@click.option("--namespace", default=names.INSTALL_NAMESPACE, help="Namespace in which Virtpod is installed.")
@click.option("--launcher-image", required=True, help="Image of the launcher Pods.")
@click.option("--launcher-pull-policy", default="IfNotPresent", help="Pull policy of that image.")
@click.option(
    "--launcher-user-namespaces/--no-launcher-user-namespaces",
    default=False,
    help="Give each launcher Pod users of its own (hostUsers: false); nodes and volumes must be able to.",
)
@click.option(
    "--export-url",
    default="",
    callback=_outside,
    help="How clients outside of the cluster reach virt-api, as https://HOST[:PORT]: for the external links of "
    "exports, and for uploads where DataVolumes are ours. Default: there are no such links.",
)
@click.option(
    "--export-ca",
    default="",
    type=click.Path(dir_okay=False),
    help="File with the certificates that they trust there, if the usual ones are not enough.",
)
@click.option("--health-listen", default="127.0.0.1:8182", help="Address of /healthz, /readyz, /leader and /metrics.")
@click.option("--leader-elect/--no-leader-elect", default=True, help="Work only while elected as leader.")
@click.option("--lease-duration", default=15.0, help="Seconds after which a silent leader is replaced.")
@click.option("--renew-deadline", default=10.0, help="Seconds within which the leader must renew its lease.")
@click.option("--retry-period", default=2.0, help="Seconds between attempts to get or renew the lease.")
@click.option("--workers", default=8, help="Number of VMIs to work on at once.")
@click.option(
    "--certificates",
    default="off",
    type=click.Choice(["off", "builtin", "external"]),
    help="Who makes the certificate that virt-api shows to the API server: the leader (builtin), or something else "
    "such as cert-manager (external). What our programs show one another is the leader's in both cases; off: nobody's.",
)
@click.option("--ca-lifetime", default="8760h", callback=_lifetime, help="How long a CA is valid.")
@click.option("--leaf-lifetime", default="168h", callback=_lifetime, help="How long a certificate is valid.")
@click.option("--default-kubevirt", default="", help="File with the KubeVirt object to create and keep.")
@click.option("--log-level", default="info", type=click.Choice(list(LEVELS)), help="Lowest level to log.")
@click.option(
    "--check-uninstall",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=check_option,
    help="Do not run; say whether there are still VMs or VMIs, which nobody would look after, and exit.",
)
def main(
    *,
    kubeconfig: str | None,
    namespace: str,
    launcher_image: str,
    launcher_pull_policy: str,
    launcher_user_namespaces: bool,
    export_url: str,
    export_ca: str,
    health_listen: str,
    leader_elect: bool,
    lease_duration: float,
    renew_deadline: float,
    retry_period: float,
    workers: int,
    certificates: str,
    ca_lifetime: timedelta,
    leaf_lifetime: timedelta,
    default_kubevirt: str,
    log_level: str,
) -> None:
    """Run the controllers of the cluster."""
    configure(COMPONENT, log_level)
    connection = load_connection(kubeconfig)
    template = TemplateConfig(launcher_image, launcher_pull_policy, user_namespaces=launcher_user_namespaces)
    leader = Leader(KubeClient(connection, COMPONENT), template, workers, namespace, Entrance(export_url, export_ca))
    follow_log_level(leader.config, "virtController", log_level)
    for figures in leader.figures:
        REGISTRY.collect(figures.collect)
    made: CertificateController | None = None
    if certificates != "off":
        client, serving = KubeClient(connection, COMPONENT), certificates == "builtin"
        made = _make_certificates(leader, client, namespace, ca_lifetime, leaf_lifetime, serving=serving)
    if default_kubevirt:
        leader.also("default-kubevirt", leader.default_kubevirt(namespace, default_kubevirt).run)
    supervisor = Supervisor(COMPONENT)
    elector: LeaderElector | None = None
    if leader_elect:
        elector = LeaderElector(
            # A client of its own: what the controllers do must never keep the lease waiting.
            KubeClient(connection, COMPONENT, timeout_s=retry_period * 2),
            namespace,
            names.LEASE_CONTROLLER,
            f"{socket.gethostname()}_{os.getpid()}",
            leader.run,
            lease_duration_s=lease_duration,
            renew_deadline_s=renew_deadline,
            retry_period_s=retry_period,
        )
    leads = elector.is_leader if elector is not None else lambda: True
    health = HealthServer(
        health_listen,
        _checks(elector, leads, leader, made),
        pages={
            "/leader": lambda: json.dumps({"apiserver": {"leader": str(leads()).lower()}}),
            "/healthz": leader.config.health,
        },
    )
    supervisor.thread("health", health.run)
    # Also on stand-by, so that every copy can tell which configuration it knows.
    supervisor.thread("config", leader.config.run)
    supervisor.thread("leader", elector.run if elector is not None else leader.run)
    log.info("started", server=connection.server, leader_elect=leader_elect, launcher_image=launcher_image)
    supervisor.run_and_exit()


def _checks(
    elector: LeaderElector | None, leads: Callable[[], bool], leader: Leader, made: CertificateController | None
) -> dict[str, Check]:
    checks: dict[str, Check] = {
        # A copy that stands by could take over at any moment; but nothing is ready for users while nobody works.
        "leader": lambda: None if elector is None or elector.somebody_leads() else "nobody leads yet",
        "caches": lambda: leader.ready() if leads() else None,
    }
    if made is not None:
        checks["certificates"] = lambda: made.ready() if leads() else None
    return checks


def _make_certificates(
    leader: Leader, client: KubeClient, namespace: str, ca: timedelta, leaf: timedelta, *, serving: bool
) -> CertificateController:
    # What makes certificates costs 10 MiB: only those pay who need it.
    from virt_controller.certificates.controller import CertificateController
    from virt_controller.certificates.model import Policy
    from virt_controller.certificates.signer import NodeSigner

    try:
        policy = Policy(ca, leaf)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    controller = CertificateController(client, namespace, policy, SystemClock(), serving=serving)
    signer = NodeSigner(client, namespace, policy, SystemClock())
    for number, informer in enumerate((*controller.informers, signer.informer)):
        leader.also(f"certificates-{number}", informer.run)
    leader.also("certificates", controller.run)
    leader.also("node-certificates", signer.run)
    return controller
