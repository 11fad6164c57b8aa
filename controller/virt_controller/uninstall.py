"""`virt-controller --check-uninstall`: whether Virtpod can go, or there are still machines that need it.

The chart runs it before `helm uninstall` removes anything. Without Virtpod a machine runs on, but nobody starts, stops
or repairs it any more; so whoever removes Virtpod shall decide on the machines first.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping

import click

from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.connect import ConnectError, load_connection
from virt_core.kube.errors import ApiError, NotFound

_NAMED = 5


def check_option(_context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    """An option that ends the program: 0 when nothing is in the way."""
    if not wanted:
        return
    try:
        client = KubeClient(load_connection(None), "virt-controller")
        refusal = refuse(_namespaces(client, VirtualMachine), _namespaces(client, VirtualMachineInstance))
    except (ConnectError, ApiError) as error:
        refusal = f"Virtpod is not removed: cannot find out whether there are still VMs or VMIs: {error}"
    click.echo(refusal or "there are no VMs and no VMIs", err=bool(refusal))
    sys.exit(1 if refusal else 0)


def _namespaces(client: KubeClient, cls: type[VirtualMachine] | type[VirtualMachineInstance]) -> list[str]:
    """One for each object. Where the kind is not known there are none."""
    try:
        return [obj.metadata.namespace for obj in client.list(cls, skip_invalid=True).items]
    except NotFound:
        return []


def refuse(vms: Iterable[str], vmis: Iterable[str]) -> str:
    """The sentence for the user, or nothing. Pure; takes the namespace of each object."""
    counts = {"VM": Counter(vms), "VMI": Counter(vmis)}
    found = {kind: count for kind, count in counts.items() if count}
    if not found:
        return ""
    what = " and ".join(_amount(kind, count.total()) for kind, count in found.items())
    return (
        f"Virtpod is not removed: there {'is' if _is_one(found) else 'are'} still {what} ({_places(found)}). "
        "Delete them first, or leave them behind with `helm uninstall --no-hooks`: "
        "they stay, but nobody looks after them."
    )


def _amount(kind: str, number: int) -> str:
    return f"1 {kind}" if number == 1 else f"{number} {kind}s"


def _is_one(found: Mapping[str, Counter[str]]) -> bool:
    return sum(count.total() for count in found.values()) == 1


def _places(found: Mapping[str, Counter[str]]) -> str:
    """The namespaces with most of them first; a long list is cut."""
    total: Counter[str] = sum(found.values(), Counter())
    ranked = sorted(total, key=lambda namespace: (-total[namespace], namespace))
    shown, rest = ranked[:_NAMED], len(ranked) - _NAMED
    places = ", ".join(shown) + (f" and {rest} more" if rest > 0 else "")
    return f"in namespace{'s' if len(ranked) > 1 else ''} {places}"
