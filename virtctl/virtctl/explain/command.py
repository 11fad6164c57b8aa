"""`virtctl explain vm|vmi|vmim NAME`, and `virtctl explain network vm|vmi NAME`."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import click

from virtctl.cli import command as declare
from virtctl.options import Settings
from virtctl.targets import VM, VMI, VMIM, Target, parse_target

if TYPE_CHECKING:
    from virtctl.explain.facts import Facts
    from virtctl.session import Session

NETWORK = "network"
EXPORT = ("vmexport", "vmexports", "virtualmachineexport", "virtualmachineexports")
_POLL_S = 0.5


@declare("explain")
@click.argument("target", nargs=-1, required=True, metavar="[network] (vm|vmi|vmim|vmexport) NAME")
@click.option("-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="Output format.")
@click.option("--wait", is_flag=True, help="Wait until it runs or has ended; exit code 1 unless it runs, or has moved.")
@click.option("--timeout", "minutes", type=float, default=5.0, show_default=True, help="Minutes to wait, with --wait.")
def command(settings: Settings, target: tuple[str, ...], output: str, wait: bool, minutes: float) -> None:
    """Say in one sentence where a machine, its migration or its export stands and why, and what to type next.

    The table has every handoff of its start, or every phase of the migration: whose it is, when it was done, and how
    long it took. With `network` it walks from the Pod to the guest, asks the guest whether it is there, and says where
    packets stop.
    """
    if target[0] == NETWORK and len(target) > 1:
        if wait:
            raise click.UsageError("--wait is not for a network: it is looked at once")
        explain_network(settings, parse_target(target[1:], VMI, (VM, VMI)), output)
        return
    from virtctl.explain.render import as_document, as_text, explanation, move_explanation
    from virtctl.session import session

    if is_export(target):
        if wait:
            raise click.UsageError("--wait is not for an export: `virtctl vmexport download` waits for it")
        explain_export(settings, target, output)
        return
    wanted = parse_target(target, VMI, (VM, VMI, VMIM))
    with session(settings) as cluster:
        facts = wait_for_end(cluster, wanted, minutes * 60) if wait else read(cluster, wanted)
    found = move_explanation(facts) if wanted.kind == VMIM else explanation(facts)
    click.echo(as_text(found) if output == "text" else as_document(found, output), nl=False)
    if wait and found.phase != ("Succeeded" if wanted.kind == VMIM else "Running"):
        click.get_current_context().exit(1)


def is_export(target: tuple[str, ...]) -> bool:
    """`vmexport NAME` or `vmexport/NAME`; a VMI may have any name alone."""
    kind, slash, _ = target[0].partition("/")
    return (bool(slash) or len(target) > 1) and kind.lower() in EXPORT


def explain_export(settings: Settings, target: tuple[str, ...], output: str) -> None:
    from virt_core.apis.export import VirtualMachineExport
    from virtctl.explain import exports
    from virtctl.explain.render import as_document
    from virtctl.session import session

    name = target[0].partition("/")[2] if "/" in target[0] else target[1]
    with session(settings) as cluster:
        found = exports.explained(cluster.client.get(VirtualMachineExport, name, cluster.namespace))
    click.echo(exports.as_text(found) if output == "text" else as_document(found, output), nl=False)


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


def read(cluster: Session, target: Target) -> Facts:
    from virt_core.kube.errors import NotFound
    from virtctl.explain.gathering import gather, gather_move

    try:
        if target.kind == VMIM:
            return gather_move(cluster.client, cluster.namespace, target.name)
        return gather(cluster.client, cluster.namespace, target.name, with_vm=target.kind == VM)
    except NotFound as error:
        raise click.ClickException(
            f"{target.kind} {cluster.namespace}/{target.name} does not exist; "
            f"see `kubectl get {target.kind} -n {cluster.namespace}`"
        ) from error


def wait_for_end(cluster: Session, target: Target, timeout_s: float) -> Facts:
    """Shows where it stands until it runs, has ended, or the time is over."""
    from virtctl.explain.moves import standing_of
    from virtctl.explain.standing import standing
    from virtctl.progress import Progress

    told = standing_of if target.kind == VMIM else standing

    deadline = time.monotonic() + timeout_s
    with Progress() as progress:
        while True:
            facts = read(cluster, target)
            stands = told(facts)
            if stands.final or time.monotonic() >= deadline:
                return facts
            progress.update(_stable(stands.sentence, progress.live))
            time.sleep(_POLL_S)


def _stable(sentence: str, live: bool) -> str:
    """When piped, a line for each change: without the seconds that change every time."""
    return sentence if live else re.split(r" and has (?:waited|done so) |: \d+ %", sentence)[0].rstrip(".")
