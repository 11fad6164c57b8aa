"""Listens on the local ports, or takes standard input and output, until interrupted."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from virtctl.cli import command as declare
from virtctl.options import Settings
from virtctl.portforward.ports import Forward, parse_port
from virtctl.targets import Target, parse_path, subresource_path

if TYPE_CHECKING:
    from virtctl.portforward.tcp import TcpForward
    from virtctl.portforward.udp import UdpForward
    from virtctl.session import Session
    from virtctl.stream.websocket import Stream


@declare("port-forward")
@click.argument("target", metavar="TYPE/NAME[/NAMESPACE]")
@click.argument("ports", nargs=-1, required=True, metavar="[PROTOCOL/]LOCAL[:TARGET]…")
@click.option("--stdio", is_flag=True, help="Use standard input and output instead of a local port; one port only.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Local address to listen on.")
def command(settings: Settings, target: str, ports: tuple[str, ...], stdio: bool, address: str) -> None:
    """Forward local ports to a VM or VMI, over the API server. ^C ends it.

    The protocol is tcp (default) or udp; without a target port it is the local one. Local port 0 takes any free one.
    """
    from virtctl.session import session

    wanted = parse_path(target)
    forwards = [parse_port(port) for port in ports]
    if stdio and (len(forwards) != 1 or forwards[0].protocol != "tcp"):
        raise click.UsageError("--stdio needs exactly one TCP port")
    with session(settings) as cluster:
        if stdio:
            _stdio(cluster, wanted, forwards[0])
        else:
            _listen(cluster, wanted, forwards, address)


def dial(cluster: Session, target: Target, port: Forward) -> Stream:
    """Raises HandshakeRefused or ApiError."""
    from virtctl.stream.websocket import Stream

    subresource = f"portforward/{port.remote}/{port.protocol}"
    namespace = target.namespace or cluster.namespace
    return Stream(cluster.connection, subresource_path(namespace, target.name, subresource, target.kind))


def _stdio(cluster: Session, target: Target, port: Forward) -> None:
    from virtctl.stream.relay import Ends, relay
    from virtctl.stream.websocket import HandshakeRefused

    try:
        relay(dial(cluster, target, port), Ends(sys.stdin.fileno(), sys.stdout.fileno()))
    except (HandshakeRefused, ConnectionError) as error:
        raise click.ClickException(f"cannot reach port {port.remote} of {target.name}: {error}") from error


def _listen(cluster: Session, target: Target, ports: Sequence[Forward], address: str) -> None:
    stop = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    opened: list[TcpForward | UdpForward] = []
    try:
        for port in ports:
            opened.append(_open(cluster, target, port, address))
            click.echo(f"Forwarding {port.protocol} {address}:{opened[-1].local_port} to {target.name}:{port.remote}")
        for forward in opened:
            threading.Thread(target=forward.run, daemon=True).start()
        stop.wait()
    finally:
        for forward in opened:
            forward.close()
        signal.signal(signal.SIGINT, before)


def _open(cluster: Session, target: Target, port: Forward, address: str) -> TcpForward | UdpForward:
    from virtctl.portforward.tcp import TcpForward
    from virtctl.portforward.udp import UdpForward

    kind = TcpForward if port.protocol == "tcp" else UdpForward
    try:
        return kind(address, port, lambda: dial(cluster, target, port))
    except OSError as error:
        raise click.ClickException(f"cannot listen on {port.protocol} {address}:{port.local}: {error}") from error
