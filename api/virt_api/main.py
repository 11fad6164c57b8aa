"""virt-api: admission webhooks and the aggregated subresource API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import click
from aiohttp import web

from virt_api import app
from virt_api.admission.cluster import KubeCluster
from virt_api.authn import Authenticator
from virt_api.authorizer import Authorizer
from virt_api.automation.server import beside, ensure_free
from virt_api.automation.service import Parts
from virt_api.automation.userapi import UserApi
from virt_api.certs import Certificates, Source
from virt_api.frontproxy import FixedProxy, FrontProxy, FrontProxyWatcher
from virt_api.kube import Kube
from virt_api.nodes import Nodes
from virt_api.server import HttpServer, ServingTls
from virt_api.uploads.tunnel import Forwarder
from virt_core.apis.names import INSTALL_NAMESPACE
from virt_core.apis.preset import VirtualMachineInstancePreset
from virt_core.kube.client import KubeClient
from virt_core.kube.clusterconfig import ConfigWatcher, follow_log_level
from virt_core.kube.connect import ConnectError, load_connection
from virt_core.kube.informer import Informer
from virt_core.rpc.tls import TlsFiles
from virt_core.runtime.clock import SystemClock
from virt_core.runtime.health import split_address
from virt_core.runtime.logs import configure
from virt_core.runtime.settings import click_settings
from virt_core.runtime.supervisor import Supervisor

#: The last requests still need the API server.
_LAST_ANSWERS_S = 10.0

Build = Callable[[], tuple[web.Application, Callable[[], Awaitable[None]]]]


@click.command(context_settings=click_settings("virt-api"))
@click.option("--kubeconfig", default=None, help="Path of a kubeconfig. Default: the Pod's own service account.")
@click.option("--listen", default="0.0.0.0:8443", help="Address of the HTTPS server.")
@click.option("--serving-tls-dir", required=True, help="Directory with tls.crt and tls.key of the HTTPS server.")
@click.option("--tls-dir", required=True, help="Directory with tls.crt, tls.key and ca.crt for calls to nodes.")
@click.option("--serving-tls-secret", default="", help="Secret that is watched and written to --serving-tls-dir.")
@click.option("--tls-secret", default="", help="Secret that is watched and written to --tls-dir.")
@click.option("--namespace", default=INSTALL_NAMESPACE, help="Namespace in which Virtpod is installed.")
@click.option("--handler-port", default=8186, help="Port of virt-handler, where a node names none.")
@click.option(
    "--requestheader-client-ca",
    default=None,
    help="CA of the API aggregation layer's client certificates. Default: all about them is read from the cluster.",
)
@click.option(
    "--requestheader-allowed-name",
    "allowed_names",
    multiple=True,
    default=("front-proxy-client",),
    help="Common name of such a certificate, if the CA is given. Can be given several times.",
)
@click.option("--automation-listen", default="0.0.0.0:8444", help="Address of the gRPC service automation/v1.")
@click.option("--guestfs-image", default="", help="Image with the tools of virtctl guestfs.")
@click.option("--log-level", default="info", help="Lowest level to log: debug, info, warning or error.")
def main(
    *,
    kubeconfig: str | None,
    listen: str,
    serving_tls_dir: str,
    tls_dir: str,
    serving_tls_secret: str,
    tls_secret: str,
    namespace: str,
    handler_port: int,
    requestheader_client_ca: str | None,
    allowed_names: tuple[str, ...],
    automation_listen: str,
    guestfs_image: str,
    log_level: str,
) -> None:
    """Serve the admission webhooks and subresources.kubevirt.io."""
    configure("virt-api", level=log_level)
    try:
        host, port = split_address(listen)
        client = KubeClient(load_connection(kubeconfig), user_agent="virt-api", timeout_s=8.0)
        certificates = Certificates(
            client, namespace, Source(serving_tls_dir, serving_tls_secret), Source(tls_dir, tls_secret)
        )
        serving = ServingTls(certificates.serving)
        proxy = _front_proxy(client, serving, requestheader_client_ca, allowed_names)
        ensure_free(automation_listen)
        automation = Automation(automation_listen, certificates.serving)
        config = ConfigWatcher(client, namespace)
        presets = Informer(client, VirtualMachineInstancePreset)
        follow_log_level(config, "virtAPI", log_level)
        build = _builder(
            client,
            certificates,
            namespace=namespace,
            handler_port=handler_port,
            proxy=proxy,
            automation=automation,
            config=config,
            presets=presets,
            guestfs_image=guestfs_image,
        )
        server = HttpServer(host, port, serving, build)
    except (ConnectError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    supervisor = Supervisor("virt-api")
    # Hooks run last one first.
    supervisor.on_stop(client.close)
    supervisor.on_stop(lambda: server.ended.wait(_LAST_ANSWERS_S))
    certificates.run_under(supervisor)
    if isinstance(proxy, FrontProxyWatcher):
        supervisor.thread("front-proxy", proxy.run)
    supervisor.thread("config", config.run)
    supervisor.thread("presets", presets.run)
    supervisor.thread("http", server.run)
    supervisor.run_and_exit()


class Automation(NamedTuple):
    listen: str
    tls: TlsFiles


def _front_proxy(
    client: KubeClient, serving: ServingTls, client_ca: str | None, allowed_names: tuple[str, ...]
) -> FixedProxy | FrontProxyWatcher:
    """Raises OSError when the given file cannot be read."""
    if not client_ca:
        return FrontProxyWatcher(client, lambda found: serving.trust(found.ca))
    fixed = FixedProxy(FrontProxy(Path(client_ca).read_bytes(), frozenset(allowed_names)))
    serving.trust(fixed.current().ca)
    return fixed


def _builder(
    client: KubeClient,
    certificates: Certificates,
    *,
    namespace: str,
    handler_port: int,
    proxy: FixedProxy | FrontProxyWatcher,
    automation: Automation,
    config: ConfigWatcher,
    presets: Informer[VirtualMachineInstancePreset],
    guestfs_image: str,
) -> Build:
    """Everything that lives in the event loop is made in it."""

    def build() -> tuple[web.Application, Callable[[], Awaitable[None]]]:
        clock, kube = SystemClock(), Kube(client)
        nodes = Nodes(kube, certificates.calls, handler_port, namespace)
        services = app.Services(
            kube=kube,
            nodes=nodes,
            authenticator=Authenticator(kube, clock, proxy.current),
            authorizer=Authorizer(kube),
            config=config.current(),
            live_config=config.current,
            config_ready=config.has_synced,
            config_version=lambda: config.state().version,
            cluster=KubeCluster(client, presets),
            clock=clock,
            namespace=namespace,
            guestfs_image=guestfs_image,
            forwarder=(forwarder := Forwarder(client.connection)),
            token_key=lambda: certificates.serving.current().key,
            checks={**certificates.checks(), "front proxy": proxy.ready},
        )

        async def close() -> None:
            await forwarder.close()
            await nodes.close()
            kube.close()

        application = app.build(services)
        parts = Parts(UserApi(client.connection), kube, nodes, services.authenticator, services.authorizer)
        application.cleanup_ctx.append(beside(automation.listen, automation.tls, parts))
        return application, close

    return build


if __name__ == "__main__":
    main()
