"""The node agent as a process: `virt-local node`. Must be started in the node's network namespace, as root;
`virt-local up` has made the namespace and the Pods' bridge in it.

It can be killed at any moment: containers do not notice, and the next start finds them again.
"""

from __future__ import annotations

from typing import NoReturn

from virt_core import __version__
from virt_core.kube.client import KubeClient
from virt_core.kube.connect import load_connection
from virt_core.kube.recorder import EventRecorder
from virt_core.runtime.clock import Clock, SystemClock
from virt_core.runtime.logs import get_logger
from virt_core.runtime.supervisor import Supervisor
from virt_local.node.api import ApiObjects, ApiPods
from virt_local.node.assemble import Runtime, assemble
from virt_local.node.capacity import read_machine, system_info
from virt_local.node.options import NodeOptions
from virt_local.node.registration import NodeFacts, Registration
from virt_local.node.server.app import Tls, build_app, run_server
from virt_local.node.server.lookup import Lookup

log = get_logger(__name__)

#: The Kubernetes release whose behaviour the node follows, as the API server says too; shown by `kubectl get nodes`.
KUBERNETES_VERSION = "v1.36.0"


def run(options: NodeOptions) -> NoReturn:
    """Works until SIGTERM or SIGINT, then ends the process. Raises SetupError when the machine lacks something."""
    clock = SystemClock()
    options.root.mkdir(parents=True, exist_ok=True)
    machine = read_machine(options.root)
    client = KubeClient(load_connection(options.kubeconfig), user_agent=f"virt-local-node/{options.name}")
    pods = ApiPods(client, options.name)
    recorder = EventRecorder(client, "kubelet", options.name)
    runtime = assemble(options.settings(machine), pods, pods, objects=ApiObjects(client), events=recorder, clock=clock)
    info = system_info(f"{KUBERNETES_VERSION}+virtpod-{__version__}", f"runc://{runtime.containers.runc.version()}")
    facts = NodeFacts(options.name, options.address, options.port, options.pod_cidrs, machine, info)
    supervisor = Supervisor(f"node-{options.name}")
    _add_threads(supervisor, runtime, pods, recorder, Registration(client, facts, clock))
    _add_server(supervisor, runtime, pods, options, clock)
    supervisor.on_stop(runtime.close)
    supervisor.on_stop(runtime.manager.wake)
    supervisor.run_and_exit()


def _add_threads(
    supervisor: Supervisor, runtime: Runtime, pods: ApiPods, recorder: EventRecorder, registration: Registration
) -> None:
    manager = runtime.manager
    pods.on_change(manager.enqueue)
    supervisor.thread("registration", registration.run)
    supervisor.thread("informer", pods.run)
    supervisor.thread("events", recorder.run)
    for name, body in manager.threads().bodies.items():
        supervisor.thread(name, body)
    supervisor.thread("pods", lambda stop: manager.run(stop, pods.synced))


def _add_server(supervisor: Supervisor, runtime: Runtime, pods: ApiPods, options: NodeOptions, clock: Clock) -> None:
    lookup = Lookup(pods, runtime.manager.worker.state, runtime.containers.bundle)
    netns = runtime.layout.root / "netns"
    app = build_app(lookup, runtime.containers.runc, netns, client_name=options.api_client_name, now=clock.now)
    tls = Tls(options.tls_cert, options.tls_key, options.client_ca, options.api_client_name)
    supervisor.thread("server", lambda stop: run_server(app, options.address, options.port, tls, stop))
