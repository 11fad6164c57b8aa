"""virt-handler: the node's agent. One on every node that runs VMs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from virt_core.apis import names
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.nodes import Node
from virt_core.apis.podroles import Role
from virt_core.kube.client import KubeClient
from virt_core.kube.clusterconfig import ConfigWatcher, follow_log_level
from virt_core.kube.connect import load_connection
from virt_core.kube.controller import Controller, Synced
from virt_core.kube.recorder import WARNING, EventRecorder
from virt_core.kube.workqueue import WorkQueue
from virt_core.runtime.clock import SystemClock
from virt_core.runtime.files import private_directory
from virt_core.runtime.health import Check, HealthServer
from virt_core.runtime.logs import LEVELS, configure, get_logger
from virt_core.runtime.metrics import REGISTRY
from virt_core.runtime.settings import click_settings
from virt_core.runtime.supervisor import Supervisor
from virt_handler.figures.collector import Collector
from virt_handler.loop.controller import HandlerController, Parts
from virt_handler.loop.errands import Errands
from virt_handler.loop.forecasting import Forecaster
from virt_handler.loop.moves import Moves, Place
from virt_handler.loop.options import sync_options
from virt_handler.loop.records import GhostRecord, NetworkRecord, RecordStore
from virt_handler.loop.roster import Roster, Sessions
from virt_handler.loop.sessions import Session
from virt_handler.loop.vmis import NodeVmis
from virt_handler.loop.volumes import Volumes
from virt_handler.loop.watcher import Watcher
from virt_handler.moves.journal import Journal
from virt_handler.node.capabilities import NodeCapabilities
from virt_handler.node.devices.manager import DeviceManager
from virt_handler.node.devices.units import Host
from virt_handler.node.heartbeat import Heartbeat
from virt_handler.node.seccomp import SeccompProfile
from virt_handler.pods.contacts import Contacts
from virt_handler.pods.files import PodFiles
from virt_handler.pods.gate import Gate
from virt_handler.pods.guestservers import GuestServers
from virt_handler.pods.network import NetworkWiring
from virt_handler.pods.plugging import Plugging
from virt_handler.service.forecasts import Forecasts
from virt_handler.service.networks import Networks
from virt_handler.service.node_server import Certificates, NodeServer, certificates, given_certificates
from virt_handler.service.node_service import NodeServicer

log = get_logger(__name__)

COMPONENT = "virt-handler"
#: The loop never waits for a guest or a launcher, so a few are enough for a burst.
WORKERS = 6
_SERVER_LOST_S = 0.5


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
        self.vmis = NodeVmis(client, node_name)
        self.recorder = EventRecorder(client, COMPONENT, node_name, clock=self.clock)
        self.sessions = Sessions()
        self.files = PodFiles(pods_dir)
        self.host = Host()
        self.watcher = Watcher()
        self.capabilities = NodeCapabilities(node_info_dir, kvm_device=self.host.path("/dev/kvm"))
        self.config = ConfigWatcher(client, namespace)
        self._state = Path(state_dir)
        self.gate = Gate(str(self._state / "notify"), self.clock)
        self.errands = Errands()
        self.moves: Moves | None = None
        self.journal = Journal()
        self.forecasts = Forecasts(self.journal)
        self.contacts = Contacts(self.files, self.watcher, self.gate, self.queue, self.tell, errands=self.errands)

    def controller(self, netsetup_command: str, place: Place | None = None) -> HandlerController:
        """`place` is how other nodes reach this one; without it no machine moves."""
        wiring = NetworkWiring(
            shlex.split(netsetup_command),
            state_dir=str(self._state / "netsetup"),
            records=RecordStore(str(self._state / "network"), NetworkRecord),
            clock=self.clock,
            done=lambda session: self.queue.add(session.key),
            servers=GuestServers(self.watcher, self._server_lost),
            plugins=lambda: self.config.current().network_bindings,
        )
        self.network = wiring
        return HandlerController(
            Parts(
                client=self.client,
                vmis=self.vmis,
                queue=self.queue,
                recorder=self.recorder,
                clock=self.clock,
                sessions=self.sessions,
                roster=Roster(
                    self.node_name,
                    self.clock,
                    self.sessions,
                    RecordStore(str(self._state / "ghosts"), GhostRecord),
                    self.contacts,
                    wiring,
                ),
                contacts=self.contacts,
                network=wiring,
                capabilities=self.capabilities,
                host=self.host,
                errands=self.errands,
                volumes=Volumes(Plugging(self.files, self.host), self.errands, self.queue, self.recorder),
                config=self.config.current,
                moves=self._moves(place) if place is not None else None,
                journal=self.journal,
                forecaster=Forecaster(self.forecasts, self.errands, self.queue),
            )
        )

    def _moves(self, place: Place) -> Moves:
        self.moves = Moves(
            place,
            self.files,
            self.errands,
            self.queue,
            self.host,
            lambda session, vmi: sync_options(session, vmi, self.capabilities, self.config.current()),
            lambda: self.config.current().migrations.network,
        )
        return self.moves

    def devices(self, directory: str) -> DeviceManager | None:
        """The device plugins, where there is a kubelet to take them. Elsewhere the node offers its devices itself."""
        if not directory or not os.path.isdir(directory):
            log.info("no device plugins: there is no such directory of a kubelet", directory=directory)
            return None
        manager = DeviceManager(directory, self.config.current, self.clock, self.host)
        self.config.on_change(lambda _config: manager.wake())
        return manager

    def certificates(self, namespace: str, directory: str) -> Certificates:
        """This node's own, on request. Who looks at the node sees why it was refused."""
        node = Node(metadata=ObjectMeta(name=self.node_name))

        def refused(why: str) -> None:
            self.recorder.event(node, WARNING, "CertificateRefused", why)

        return certificates(self.client, namespace, self.node_name, directory, self.clock, refused)

    def close(self) -> None:
        """Lets go of the launchers; they and their guests go on."""
        self.network.close()
        if self.moves is not None:
            self.moves.close_all()
        for session in self.sessions:
            self.contacts.close(session)
        self.gate.stop()

    def _server_lost(self, session: Session) -> None:
        """Not at once: with a Pod ends all that is in it, its servers a moment before its launcher."""
        self.queue.add_after(session.key, _SERVER_LOST_S)

    def tell(self, session: Session, kind: str, reason: str, message: str) -> None:
        """A launcher's own Event, on the VMI of its session. Only the one that has the guest speaks for the VMI."""
        if session.role is not Role.ACTIVE:
            log.info("a launcher says something", vmi=session.key, pod=session.pod_uid, reason=reason, message=message)
            return
        vmi = self.vmis.get(session.key)
        if vmi is not None and vmi.metadata.uid == session.vmi_uid:
            self.recorder.event(vmi, kind, reason, message)


@click.command(context_settings=click_settings(COMPONENT))
@click.option("--kubeconfig", help="Path of a kubeconfig. Default: the Pod's own service account.")
@click.option("--namespace", default=names.INSTALL_NAMESPACE, help="Namespace in which Virtpod is installed.")
@click.option("--node-name", required=True, help="Name of this node.")
@click.option("--listen", default="0.0.0.0:8186", help="Address of the node service for virt-api.")
@click.option("--advertise", default="", help="Address at which virt-api reaches it. Default: that of --listen.")
@click.option("--tls-dir", required=True, help="Directory with tls.crt, tls.key and ca.crt of the node service.")
@click.option("--request-certificate", is_flag=True, help="Ask the cluster for them, and keep them in --tls-dir.")
@click.option("--kubelet-root", default="/var/lib/kubelet", help="Root directory of the kubelet.")
@click.option("--pods-dir", help="Directory with the volumes of the node's Pods. Default: `pods` in --kubelet-root.")
@click.option(
    "--device-plugin-dir", help="Directory of the kubelet's device plugins; empty: none. Default: in --kubelet-root."
)
@click.option(
    "--node-info-dir",
    default="/var/lib/virtpod/node-info",
    help="Directory with what the probe found out about the node.",
)
@click.option("--state-dir", default="/var/lib/virtpod/handler", help="Directory of virt-handler's records.")
@click.option("--health-listen", default="127.0.0.1:8183", help="Address of /healthz, /readyz and /metrics.")
@click.option("--netsetup-command", default="virt-netsetup", help="Program that wires the network of a Pod.")
@click.option("--log-level", default="info", type=click.Choice(list(LEVELS)), help="Lowest level to log.")
def main(
    *,
    kubeconfig: str | None,
    namespace: str,
    node_name: str,
    listen: str,
    advertise: str,
    tls_dir: str,
    request_certificate: bool,
    kubelet_root: str,
    pods_dir: str | None,
    device_plugin_dir: str | None,
    node_info_dir: str,
    state_dir: str,
    health_listen: str,
    netsetup_command: str,
    log_level: str,
) -> None:
    """Run the machines of one node."""
    configure(COMPONENT, log_level)
    private_directory(state_dir)
    # The launcher's group must reach the sockets that we make for it; every file of ours names its mode.
    os.umask(0o007)
    client = KubeClient(load_connection(kubeconfig), COMPONENT)
    pods_dir = pods_dir or os.path.join(kubelet_root, "pods")
    handler = Handler(client, node_name, pods_dir, node_info_dir, state_dir, namespace=namespace)
    follow_log_level(handler.config, "virtHandler", log_level, node_name)
    certs = handler.certificates(namespace, tls_dir) if request_certificate else given_certificates(tls_dir)
    place = Place(node_name, host_of(advertise or listen), lambda: certs.files, namespace)
    controller = handler.controller(netsetup_command, place)
    server = NodeServer(
        listen,
        certs,
        lambda tls: NodeServicer(
            node_name,
            handler.sessions,
            handler.files,
            tls=tls,
            forecasts=handler.forecasts,
            networks=Networks(handler.vmis.get, handler.network.observe),
        ),
        names.tls_name_api(namespace),
    )
    if device_plugin_dir is None:
        device_plugin_dir = os.path.join(kubelet_root, "device-plugins")
    devices = handler.devices(device_plugin_dir)
    handler.config.on_change(SeccompProfile(kubelet_root).follow)
    heartbeat = Heartbeat(
        client,
        node_name,
        advertise or listen,
        handler.capabilities,
        handler.clock,
        handler.config.current,
        kubelet_root=kubelet_root,
        ready=devices.ready if devices is not None else lambda: True,
    )
    controller.restore()
    REGISTRY.collect(Collector(node_name, handler.sessions, handler.errands, handler.clock).collect)
    supervisor = Supervisor(COMPONENT)
    supervisor.thread("health", _health(health_listen, handler, server).run)
    _supervise(supervisor, handler, server, heartbeat, devices)
    synced: list[Synced] = [handler.vmis, handler.config]
    supervisor.thread("controller", Controller("vmi", handler.queue, controller.reconcile, WORKERS, synced).run)
    supervisor.on_stop(handler.close)
    log.info("started", node=node_name, listen=listen, kvm=handler.capabilities.kvm)
    supervisor.run_and_exit()


def host_of(address: str) -> str:
    """Of `10.0.0.1:8186` or `[fd00::1]:8186`."""
    return address.rpartition(":")[0].strip("[]")


def _health(listen: str, handler: Handler, server: NodeServer) -> HealthServer:
    checks: dict[str, Check] = {
        "vmis": lambda: handler.vmis.has_synced() or "waiting for the first list",
        "node service": server.ready,
    }
    return HealthServer(listen, checks, pages={"/healthz": handler.config.health})


def _supervise(
    supervisor: Supervisor, handler: Handler, server: NodeServer, heartbeat: Heartbeat, devices: DeviceManager | None
) -> None:
    supervisor.thread("config", handler.config.run)
    for name, informer in zip(("informer-vmis", "informer-arrivals"), handler.vmis.informers, strict=True):
        supervisor.thread(name, informer.run)
    supervisor.thread("events", handler.recorder.run)
    supervisor.thread("watcher", handler.watcher.run)
    supervisor.thread("gate", handler.gate.run)
    supervisor.thread("netsetup", handler.network.run)
    supervisor.thread("node-service", server.run)
    own = server.certificates.own
    if own is not None:
        supervisor.thread("certificate", own.run)
        supervisor.thread("certificate-trust", own.watch)
    supervisor.thread("heartbeat", heartbeat.run)
    if devices is not None:
        devices.readiness_changed = heartbeat.nudge
        devices.mediator.labels = heartbeat.labels
        supervisor.thread("devices", devices.run)
