"""What the guest agent knows: the guest's system, its users, its file systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from virtctl.cli import command
from virtctl.options import Settings
from virtctl.targets import subresource_path

_NAME = click.argument("name", metavar="VMI")
_OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "yaml", "table"]),
    default="json",
    show_default=True,
    help="Output format.",
)


@command("guestosinfo")
@_NAME
@_OUTPUT
def guestosinfo(settings: Settings, name: str, output: str) -> None:
    """Show what the guest agent says of the guest's system."""
    _show(settings, name, "guestosinfo", output, _system_table)


@command("userlist")
@_NAME
@_OUTPUT
def userlist(settings: Settings, name: str, output: str) -> None:
    """List the users that are logged in to the guest."""
    _show(settings, name, "userlist", output, _user_table)


@command("fslist")
@_NAME
@_OUTPUT
def fslist(settings: Settings, name: str, output: str) -> None:
    """List the file systems that the guest has mounted."""
    _show(settings, name, "filesystemlist", output, _filesystem_table)


def _show(settings: Settings, name: str, subresource: str, form: str, tabulate: Callable[[Any], str]) -> None:
    import msgspec

    from virtctl.output import document
    from virtctl.session import session

    with session(settings) as cluster:
        body = cluster.client.raw("GET", subresource_path(cluster.namespace, name, subresource))
        try:
            answer = msgspec.json.decode(body)
        except msgspec.MsgspecError as error:
            raise click.ClickException(f"virt-api's answer about {name} is not JSON: {error}") from error
    click.echo(tabulate(answer) if form == "table" else document(answer, form), nl=False)


def _system_table(answer: Any) -> str:
    from virtctl.output import table

    system = answer.get("os", {})
    row = [answer.get("hostname"), system.get("prettyName") or system.get("name"), system.get("kernelRelease")]
    return table(
        ["HOSTNAME", "SYSTEM", "KERNEL", "TIMEZONE", "AGENT"],
        [[*row, answer.get("timezone"), answer.get("guestAgentVersion")]],
    )


def _user_table(answer: Any) -> str:
    from virtctl.output import table

    rows = [[user.get("userName"), user.get("domain"), _time(user.get("loginTime"))] for user in _items(answer)]
    return table(["USER", "DOMAIN", "LOGIN"], rows)


def _filesystem_table(answer: Any) -> str:
    from virtctl.output import size, table

    rows = [
        (
            fs.get("mountPoint"),
            fs.get("fileSystemType"),
            size(fs.get("usedBytes")),
            size(fs.get("totalBytes")),
            fs.get("diskName"),
        )
        for fs in _items(answer)
    ]
    return table(["MOUNT", "TYPE", "USED", "SIZE", "DISK"], rows)


def _items(answer: Any) -> list[dict[str, Any]]:
    return answer.get("items") or []


def _time(seconds: Any) -> str:
    from datetime import UTC, datetime

    if not isinstance(seconds, (int, float)):
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
