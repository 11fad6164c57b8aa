"""`virtctl explain KIND NAME`, and `virtctl explain network vm|vmi NAME`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from virtctl.cli import command as declare
from virtctl.options import Settings
from virtctl.targets import VM, VMBACKUP, VMCLONE, VMEXPORT, VMI, VMIM, VMRESTORE, VMSNAPSHOT, Target, parse_target

if TYPE_CHECKING:
    from virt_core.kube.client import KubeClient
    from virtctl.explain.render import Explanation
    from virtctl.explain.words import Standing
    from virtctl.session import Session

NETWORK = "network"
_KINDS = (VM, VMI, VMIM, VMSNAPSHOT, VMRESTORE, VMCLONE, VMEXPORT, VMBACKUP)
_POLL_S = 0.5


@declare("explain")
@click.argument("target", nargs=-1, required=True, metavar=f"[network] ({'|'.join(_KINDS)}) NAME")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="Output format.")
@click.option("--wait", is_flag=True, help="Wait until it runs or has ended; exit code 1 unless it did what it is for.")
@click.option("--timeout", "minutes", type=float, default=5.0, show_default=True, help="Minutes to wait, with --wait.")
def command(settings: Settings, target: tuple[str, ...], output: str, wait: bool, minutes: float) -> None:
    """Say in one sentence where a machine, or what is done to it, stands and why, and what to type next.

    The table has every handoff of its start, every phase of the migration, or every step of the clone: whose it is,
    when it was done, and how long it took. With `network` it walks from the Pod to the guest, asks the guest whether it
    is there, and says where packets stop.
    """
    if target[0] == NETWORK and len(target) > 1:
        if wait:
            raise click.UsageError("--wait is not for a network: it is looked at once")
        explain_network(settings, parse_target(target[1:], VMI, (VM, VMI)), output)
        return
    from virtctl.explain.render import as_document, as_text
    from virtctl.session import session

    wanted = parse_target(target, VMI, _KINDS)
    view = view_of(wanted.kind)
    with session(settings) as cluster:
        facts = wait_for_end(cluster, wanted, view, minutes * 60) if wait else read(cluster, wanted, view)
    found = view.explain(facts)
    click.echo(as_text(found) if output == "text" else as_document(found, output), nl=False)
    if wait and not view.good(found):
        click.get_current_context().exit(1)


@dataclass(frozen=True, slots=True)
class View:
    """How a kind is read and told."""

    gather: Callable[[KubeClient, str, str], Any]
    stands: Callable[[Any], Standing]
    explain: Callable[[Any], Explanation]
    #: Whether it did what it is for.
    good: Callable[[Explanation], bool]


def view_of(kind: str) -> View:
    from virtctl.explain import gathering, render

    if kind in (VMSNAPSHOT, VMRESTORE):
        return _copy_view(kind)
    if kind == VMCLONE:
        from virtctl.explain import clones

        return View(clones.gather, clones.standing_of, clones.explanation, _in_phase("Succeeded"))
    if kind == VMEXPORT:
        from virtctl.explain import exports

        return View(gathering.gather_export, exports.standing_of, exports.explained, _in_phase("Ready"))
    if kind == VMBACKUP:
        from virtctl.explain import backups

        return View(gathering.gather_backup, backups.standing_of, backups.explained, _in_phase("Complete"))
    if kind == VMIM:
        from virtctl.explain import moves

        return View(gathering.gather_move, moves.standing_of, render.move_explanation, _in_phase("Succeeded"))
    from virtctl.explain.standing import standing

    return View(partial(gathering.gather, with_vm=kind == VM), standing, render.explanation, _in_phase("Running"))


def _copy_view(kind: str) -> View:
    """Of a snapshot or a restore."""
    from virtctl.explain.copies import explained
    from virtctl.explain.copygathering import gather_restore, gather_snapshot

    return View(
        gather_snapshot if kind == VMSNAPSHOT else gather_restore,
        lambda copy: explained(copy).standing,
        explained,
        lambda found: found.standing.final and not found.standing.failed,
    )


def _in_phase(phase: str) -> Callable[[Explanation], bool]:
    return lambda found: found.phase == phase


def explain_network(settings: Settings, wanted: Target, output: str) -> None:
    from virt_core.apis.vmi import VirtualMachineInstance
    from virt_core.kube.errors import NotFound
    from virtctl.explain import network
    from virtctl.explain.render import as_document
    from virtctl.session import session

    with session(settings) as cluster:
        try:
            vmi = cluster.client.get(VirtualMachineInstance, wanted.name, cluster.namespace)
        except NotFound as error:
            raise click.ClickException(
                f"{wanted.kind} {cluster.namespace}/{wanted.name} does not run, so it has no network; "
                f"see `virtctl explain {wanted.kind} {wanted.name} -n {cluster.namespace}`"
            ) from error
        report = network.ask(cluster.client, cluster.namespace, wanted.name)
        kind = "VirtualMachine" if wanted.kind == VM else "VirtualMachineInstance"
        found = network.explained(kind, cluster.namespace, wanted.name, vmi.status.node_name, report)
    click.echo(network.as_text(found) if output == "text" else as_document(found, output), nl=False)


def read(cluster: Session, target: Target, view: View) -> Any:
    from virt_core.kube.errors import NotFound

    try:
        return view.gather(cluster.client, cluster.namespace, target.name)
    except NotFound as error:
        raise click.ClickException(
            f"{target.kind} {cluster.namespace}/{target.name} does not exist; "
            f"see `kubectl get {target.kind} -n {cluster.namespace}`"
        ) from error


def wait_for_end(cluster: Session, target: Target, view: View, timeout_s: float) -> Any:
    """Shows where it stands until it runs, has ended, or the time is over."""
    from virtctl.progress import Progress

    deadline = time.monotonic() + timeout_s
    with Progress() as progress:
        while True:
            facts = read(cluster, target, view)
            stands = view.stands(facts)
            if stands.final or time.monotonic() >= deadline:
                return facts
            progress.update(_stable(stands.sentence, progress.live))
            time.sleep(_POLL_S)


def _stable(sentence: str, live: bool) -> str:
    """When piped, a line for each change: without the seconds that change every time."""
    return (
        sentence
        if live
        else re.split(r" and has (?:waited|done so) |: \d+ %| It is given up in ", sentence)[0].rstrip(".")
    )
