"""The actions of probes: run a command, ask by HTTP, connect by TCP. From the node, within its network namespace."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from virt_core.apis.podparts import HTTPGetAction
from virt_core.apis.pods import Container, Probe
from virt_local.node.runtime.monitor import UMASK

_MAX_BODY = 10 << 10


@dataclass(frozen=True)
class Target:
    """The container that is asked."""

    container: Container
    container_id: str
    pod_ip: str
    exec_command: Callable[[list[str]], list[str]]


@dataclass(frozen=True)
class Outcome:
    success: bool
    message: str = ""


def run(probe: Probe, target: Target) -> Outcome:
    timeout_s = float(probe.timeout_seconds or 1)
    try:
        if probe.exec_ is not None:
            return _exec(target.exec_command(probe.exec_.command), timeout_s)
        if probe.http_get is not None:
            return _http(probe.http_get, target, timeout_s)
        if probe.tcp_socket is not None:
            address = (probe.tcp_socket.host or target.pod_ip, port_of(target.container, probe.tcp_socket.port))
            socket.create_connection(address, timeout_s).close()
            return Outcome(True)
    except (OSError, ValueError, http.client.HTTPException) as err:
        return Outcome(False, str(err) or type(err).__name__)
    return Outcome(False, "the probe has no action that this node knows")


def _exec(command: list[str], timeout_s: float) -> Outcome:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
            umask=UMASK,
        )
    except subprocess.TimeoutExpired:
        return Outcome(False, f"the command took longer than {timeout_s:g} s")
    text = done.stdout[-_MAX_BODY:].decode(errors="replace").strip()
    return Outcome(done.returncode == 0, text or f"exit code {done.returncode}")


def _http(action: HTTPGetAction, target: Target, timeout_s: float) -> Outcome:
    host, port = action.host or target.pod_ip, port_of(target.container, action.port)
    connection: http.client.HTTPConnection
    if action.scheme.upper() == "HTTPS":
        # A probe asks whether somebody answers, not who: as with the kubelet, the certificate is not checked.
        context = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    headers = {"User-Agent": "kube-probe/virt-local", **{header.name: header.value for header in action.http_headers}}
    try:
        connection.request("GET", action.path or "/", headers=headers)
        response = connection.getresponse()
        response.read(_MAX_BODY)
    finally:
        connection.close()
    return Outcome(200 <= response.status < 400, f"HTTP status {response.status}")


def port_of(container: Container, port: int | str) -> int:
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for declared in container.ports:
        if declared.name == port:
            return declared.container_port
    raise ValueError(f"container {container.name!r} has no port named {port!r}")
