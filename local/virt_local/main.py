"""The command line of virt-local. What a command needs is imported by the command, so that `status` stays quick."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from virt_core import __version__
from virt_local.entries import COMMANDS
from virt_local.images import image
from virt_local.places import existing_instance, place, place_of

if TYPE_CHECKING:
    from virt_local.up.errors import UpError
    from virt_local.up.instance import Instance

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 120, "show_default": True}


def main() -> None:
    """The console script."""
    from virt_local.up.errors import UpError
    from virt_local.up.instance import SettingsError

    os.umask(0o077)  # For us and for all that we start: what others may see names its mode.
    try:
        cli(standalone_mode=True)
    except SettingsError as err:
        sys.exit(_complain(str(err), 2))
    except UpError as err:
        sys.exit(_complain(str(err), err.exit_code))


def _complain(text: str, code: int) -> int:
    print(f"error: {text}", file=sys.stderr)
    return code


@click.group(context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="virt-local")
def cli() -> None:
    """Virtpod on one machine: the Kubernetes API, a scheduler and nodes, without a cluster."""


@cli.command()
@place
@click.option("--nodes", type=int, default=1, envvar="VIRT_LOCAL_NODES", help="Number of nodes.")
@click.option("--port", type=int, default=7443, envvar="VIRT_LOCAL_PORT", help="Port of the API on 127.0.0.1.")
@click.option("--network-cidr", envvar="VIRT_LOCAL_NETWORK_CIDR", help="A free /16 network. [default: 10.244.0.0/16]")
@click.option(
    "--guests-reach-host",
    is_flag=True,
    envvar="VIRT_LOCAL_GUESTS_REACH_HOST",
    help="Let Pods and guests reach this machine's ports and other instances.",
)
@click.option("--detach", is_flag=True, help="Go into the background when everything is ready.")
@click.option("--host-users", is_flag=True, help="Let guests share one user of this machine, uid 107.")
@click.option("--no-components", is_flag=True, help="Start the API, the controllers and the nodes, but not Virtpod.")
def up(
    *,
    instance: str | None,
    data_dir: str | None,
    nodes: int,
    port: int,
    network_cidr: str | None,
    guests_reach_host: bool,
    detach: bool,
    host_users: bool,
    no_components: bool,
) -> None:
    """Start everything, and keep it running.

    \b
    Exit codes:
      0  it is up (--detach), or it was stopped by Ctrl-C
      1  the start failed; the end of the log that says why is shown
      2  it cannot start here: no root, a program is missing, a port or the network is taken, a bad flag
      3  it is already running
    """
    from virt_core.runtime import logs
    from virt_local.up.daemon import detach as go_to_background
    from virt_local.up.errors import UpError, place_error
    from virt_local.up.instance import make_instance
    from virt_local.up.privacy import secure
    from virt_local.up.progress import Progress
    from virt_local.up.supervise import Up

    where = place_of(instance, data_dir)
    chosen = make_instance(instance or "vp", where, port, nodes, network_cidr, guests_reach_host=guests_reach_host)
    _need_root()
    secure(chosen)
    product = not no_components

    def serve(progress: Progress, on_ready: Callable[[], None]) -> None:
        logs.configure("virt-local")
        Up(chosen, progress, product=product, host_users=host_users, on_ready=on_ready).run()

    try:
        if detach:
            go_to_background(serve, chosen.log_file("supervisor"), _emit)
            _emit(f"Use it with: export KUBECONFIG={chosen.admin_kubeconfig}")
        else:
            serve(Progress(_emit), lambda: _emit(f"Stop with Ctrl-C. KUBECONFIG={chosen.admin_kubeconfig}"))
    except UpError as err:
        _show_log(chosen, err)
        raise
    except OSError as err:
        raise place_error(err) from err


def _need_root() -> None:
    """Before anything is written, and before a background process could only say it in its log."""
    from virt_local.up.errors import UpError
    from virt_local.up.preflight import PreflightError, check_root

    try:
        check_root()
    except PreflightError as err:
        raise UpError(str(err), exit_code=2) from err


def _emit(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _show_log(instance: Instance, err: UpError) -> None:
    from virt_local.up.loglines import tail

    path = instance.log_file(err.log)
    if err.log and path.exists():
        _emit(f"--- the end of {path}:")
        _emit(tail(path, 20).rstrip())
        _emit("---")


@cli.command()
@place
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; the exit code says whether all is well.")
def status(*, instance: str | None, data_dir: str | None, output: str, quiet: bool) -> None:
    """Show what runs. Exit code 0: all is well, 1: not running, 4: running, but not everything."""
    from virt_local.up.status import read_status, render, to_plain

    chosen = existing_instance(instance, data_dir)
    found = read_status(chosen)
    if not quiet:
        print(json.dumps(to_plain(chosen, found), indent=2) if output == "json" else render(chosen, found))
    if output == "json" and not quiet:
        return
    sys.exit(0 if found.ready else 4 if found.running else 1)


@cli.command()
@place
@click.argument("component")
@click.option("-f", "--follow", is_flag=True, help="Keep printing as the log grows.")
@click.option("-n", "--lines", type=int, default=100, help="Number of lines to start with.")
def logs(*, instance: str | None, data_dir: str | None, component: str, follow: bool, lines: int) -> None:
    """Print a component's log."""
    from virt_local.up import loglines

    path = loglines.find_log(existing_instance(instance, data_dir), component)
    print(loglines.tail(path, lines), end="", flush=True)
    if follow:
        try:
            loglines.follow(path)
        except KeyboardInterrupt:
            return


@cli.command()
@place
def kubeconfig(*, instance: str | None, data_dir: str | None) -> None:
    """Print the path of the administrator's kubeconfig."""
    from virt_local.up.errors import UpError

    path = existing_instance(instance, data_dir).admin_kubeconfig
    if not path.exists():
        raise UpError(f"There is no kubeconfig at {path}: start with `virt-local up --detach`.")
    print(path)


@cli.command()
@place
@click.option("--purge", is_flag=True, help="Remove the data as well.")
@click.option("--grace", type=float, metavar="SECONDS", help="Kill guests and Pods that have not ended by then.")
def down(*, instance: str | None, data_dir: str | None, purge: bool, grace: float | None) -> None:
    """Stop everything: guests, Pods, components, networks.

    Guests are shut down first. Each has the grace period that its manifest names (terminationGracePeriodSeconds), and
    the longest of them is waited for.
    """
    from virt_local.up.down import take_down
    from virt_local.up.errors import NetworkError, UpError
    from virt_local.up.progress import Progress

    _need_root()
    chosen = existing_instance(instance, data_dir)
    try:
        take_down(chosen, Progress(_emit), purge=purge, limit_s=grace)
    except NetworkError as err:
        raise UpError(str(err), exit_code=2) from err
    _emit("virt-local is down.")


for _command in (image, *COMMANDS):
    cli.add_command(_command)

if __name__ == "__main__":
    main()
