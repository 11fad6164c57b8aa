"""Is a component ready? Small questions with short time-outs, and one loop that waits for all of them."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from virt_core.apis.nodes import Node as NodeObject
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import ApiError
from virt_local.node.kernel import in_netns
from virt_local.up.instance import Instance, Node

_ASK_S = 2.0
_POLL_S = 0.05

Question = Callable[[], bool]


class NotReady(RuntimeError):
    """A component did not become ready in time."""

    def __init__(self, component: str, message: str) -> None:
        super().__init__(message)
        self.component = component


@dataclass(frozen=True, slots=True)
class Check:
    """`component` names the log that explains a failure."""

    component: str
    ready: Question


def wait_ready(
    checks: list[Check],
    *,
    within_s: float,
    stop: threading.Event,
    tell: Callable[[str], None],
    hopeless: Callable[[str], str] = lambda _: "",
) -> None:
    """Tells of each component that becomes ready; raises NotReady at the deadline, or when one is `hopeless`."""
    deadline = time.monotonic() + within_s
    waiting = list(checks)
    while waiting:
        for check in list(waiting):
            if check.ready():
                waiting.remove(check)
                tell(check.component)
            elif why := hopeless(check.component):
                raise NotReady(check.component, f"{check.component} does not start: {why}")
        if waiting and time.monotonic() > deadline:
            names = ", ".join(check.component for check in waiting)
            raise NotReady(waiting[0].component, f"{names} did not become ready within {within_s:.0f} s")
        if waiting and stop.wait(_POLL_S):
            raise NotReady(waiting[0].component, "stopped before everything was ready")


def api_ready(client: KubeClient) -> bool:
    try:
        return client.raw("GET", "/readyz", timeout_s=_ASK_S) is not None
    except (ApiError, OSError):
        return False


def node_ready(client: KubeClient, node: Node) -> bool:
    """The agent answers on its port, and its Node says Ready: the condition alone may be from before a restart."""
    try:
        found = client.get(NodeObject, node.name)
    except ApiError:
        return False
    endpoint = found.status.daemon_endpoints.kubelet_endpoint if found.status.daemon_endpoints else None
    ready = any(each.type == "Ready" and each.status == "True" for each in found.status.conditions)
    return ready and endpoint is not None and port_open(node.address, endpoint.port)


def node_registered(client: KubeClient, node: Node) -> bool:
    try:
        client.get(NodeObject, node.name)
    except ApiError:
        return False
    return True


def virt_api_ready(client: KubeClient, instance: Instance, ca_pem: bytes) -> bool:
    """It answers, and the API server has noticed."""
    context = ssl.create_default_context(cadata=ca_pem.decode())
    if not http_ok("127.0.0.1", instance.api_port, "/readyz", context):
        return False
    try:
        body = client.raw("GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1.subresources.kubevirt.io")
    except ApiError:
        return False
    conditions = (msgspec.json.decode(body).get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Available" and each.get("status") == "True" for each in conditions)


def handler_ready(node: Node, port: int) -> bool:
    """Its health endpoint listens on the node's own loopback, where guests cannot reach it."""
    if not Path(node.netns_path).exists():
        return False
    return in_netns(Path(node.netns_path), lambda: http_ok("127.0.0.1", port, "/readyz"))


def http_ok(host: str, port: int, path: str, context: ssl.SSLContext | None = None) -> bool:
    connection: http.client.HTTPConnection
    if context is not None:
        connection = http.client.HTTPSConnection(host, port, timeout=_ASK_S, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=_ASK_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def port_open(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_ASK_S):
            return True
    except OSError:
        return False
