"""`virtctl adm log-verbosity`: how much each component logs, in the KubeVirt object."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from virtctl.cli import Command
from virtctl.cli import command as declare
from virtctl.options import Settings

if TYPE_CHECKING:
    from virt_core.kube.client import KubeClient

_FIELDS = {
    "virt-api": "virtAPI",
    "virt-controller": "virtController",
    "virt-handler": "virtHandler",
    "virt-launcher": "virtLauncher",
    "virt-operator": "virtOperator",
}
_DEFAULT = 2
#: `--flag` without a number: show it.
_SHOW = 10


class _Optional(Command):
    """`--virt-api` stands for `--virt-api=10`; `--virt-api 3` is not taken, as its help says."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        flags = {f"--{name}" for name in (*_FIELDS, "all")}
        return super().parse_args(ctx, [f"{word}={_SHOW}" if word in flags else word for word in args])


def _level(name: str) -> Callable[[Any], Any]:
    what = "all components" if name == "all" else name
    return click.option(
        f"--{name}", type=click.IntRange(0, _SHOW), metavar="[=LEVEL]", help=f"Show or set {what}: --{name}[=0..9]."
    )


@declare("log-verbosity", cls=_Optional)
@_level("virt-api")
@_level("virt-controller")
@_level("virt-handler")
@_level("virt-launcher")
@_level("virt-operator")
@_level("all")
@click.option("--reset", is_flag=True, help="Set all components back to the default.")
def command(settings: Settings, reset: bool, **levels: int | None) -> None:
    """Shows, sets or resets how much the components log: 0 to 9, usually 2."""
    from virtctl.devices import kubevirt
    from virtctl.session import session

    wanted = {name.replace("_", "-"): level for name, level in levels.items() if level is not None}
    shows = [name for name, level in wanted.items() if level == _SHOW]
    if not wanted and not reset:
        raise click.UsageError("say what to show or set, e.g. --all or --virt-handler=5")
    if shows and (reset or len(shows) < len(wanted)):
        raise click.UsageError("either show or set, not both at once")
    if reset and "all" in wanted:
        raise click.UsageError("--reset and --all exclude each other")
    with session(settings) as cluster:
        obj = kubevirt(cluster.client)
        now = obj["spec"].get("configuration", {}).get("developerConfiguration", {}).get("logVerbosity") or {}
        if shows:
            for name in sorted(_FIELDS if "all" in shows else shows):
                click.echo(f"{name}={now.get(_FIELDS[name], _DEFAULT)}")
        else:
            _set(cluster.client, obj, {} if reset else now, wanted, reset)


def _set(client: KubeClient, obj: dict[str, Any], now: dict[str, int], wanted: dict[str, int], reset: bool) -> None:
    import msgspec

    after: dict[str, int | None] = dict(now)
    if "all" in wanted:
        after |= dict.fromkeys(_FIELDS.values(), wanted["all"])
    after |= {_FIELDS[name]: level for name, level in wanted.items() if name != "all"}
    if reset:
        after = dict.fromkeys(_FIELDS.values()) | after
    patch = {"spec": {"configuration": {"developerConfiguration": {"logVerbosity": after}}}}
    meta = obj["metadata"]
    from virtctl.targets import part

    client.raw(
        "PATCH",
        f"/apis/kubevirt.io/v1/namespaces/{part(meta['namespace'])}/kubevirts/{part(meta['name'])}",
        body=msgspec.json.encode(patch),
        content_type="application/merge-patch+json",
    )
    click.echo("successfully set/reset the log verbosity")
