"""`virtctl vnc VMI` joins the guest's screen with a viewer; `virtctl vnc screenshot VMI` saves a picture of it."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import click

from virtctl.cli import Command, first_argument
from virtctl.cli import command as declare
from virtctl.options import Settings
from virtctl.targets import subresource_path
from virtctl.vnc.screenshot import command as screenshot

if TYPE_CHECKING:
    from virtctl.session import Session
    from virtctl.stream.websocket import Stream

_VIEWER_S = 60.0


class _VncCommand(Command):
    """`virtctl vnc NAME`, with one word that is no name: `screenshot`."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> click.Context:
        if first_argument(self, args) == "screenshot":
            args.remove("screenshot")
            return screenshot.make_context(f"{info_name} screenshot", args, *rest, **extra)
        return super().make_context(info_name, args, *rest, **extra)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([("screenshot VMI", "Save a picture of the guest's screen.")])


@declare("vnc", cls=_VncCommand)
@click.argument("name", metavar="VMI")
@click.option("--address", default="127.0.0.1", show_default=True, help="Local address, with --proxy-only.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Local port; 0 takes any free one.")
@click.option("--proxy-only", is_flag=True, help="Start no viewer; print the port for one of your own.")
@click.option("--preserve-session", is_flag=True, help="Fail rather than end the session of somebody else.")
@click.option(
    "--vnc-type",
    type=click.Choice(["tiger", "chicken", "real", "remote-viewer"]),
    help="Viewer. Default: the first one found.",
)
@click.option("--vnc-path", metavar="FILE", help="Program of the viewer. Default: the one in $PATH.")
def command(settings: Settings, name: str, address: str, port: int, preserve_session: bool, **viewer: Any) -> None:
    """Open the screen of a VMI in a VNC viewer.

    Only one can see it: a new connection ends the previous one, unless --preserve-session is given.
    """
    from virtctl.session import session
    from virtctl.vnc.viewer import find_viewer

    alone = viewer["proxy_only"]
    find = None if alone else find_viewer(viewer["vnc_type"], viewer["vnc_path"])
    with session(settings) as cluster:
        stream = _dial(cluster, name, preserve_session)
        with _listener(address if alone else "127.0.0.1", port) as listener:
            local = listener.getsockname()[1]
            if find is None:
                click.echo(json.dumps({"port": local}, separators=(",", ":")))
            _serve(stream, listener, name, find and find(local))


def _dial(cluster: Session, name: str, preserve: bool) -> Stream:
    from virtctl.stream.websocket import HandshakeRefused, Stream

    query = "?preserveSession=true" if preserve else ""
    try:
        return Stream(cluster.connection, subresource_path(cluster.namespace, name, "vnc") + query)
    except HandshakeRefused as refused:
        raise click.ClickException(f"cannot open the screen of {name}: {refused.message}") from refused


def _listener(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=1)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {address}:{port}: {error}") from error


def _serve(stream: Stream, listener: socket.socket, name: str, viewer: list[str] | None) -> None:
    """With a viewer: starts it, and it has a minute to connect. Without: the first one that comes."""
    from virtctl.stream.local import serve_one

    try:
        serve_one(stream, listener, viewer, _VIEWER_S)
    except ConnectionError as error:
        raise click.ClickException(f"the screen of {name} closed: {error}") from error
    if stream.moved:
        # A viewer begins a session anew; nobody can carry it on for it.
        raise click.ClickException(f"the screen of {name} closed: {stream.reason}; open it again")
