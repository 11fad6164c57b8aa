"""`virtctl explain network`: how far packets for a guest get, from what the machine's node sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from virt_core.apis.base import decode
from virt_core.apis.networkview import REACHED, UNSEEN, NetworkReport, NetworkWalk
from virt_core.kube.errors import ApiError
from virtctl.targets import subresource_path

if TYPE_CHECKING:
    from virt_core.kube.client import KubeClient

_HEADINGS = ("STATION", "STATE", "SEEN")
_WITHIN_S = 30.0


class NetworkExplanation(msgspec.Struct, kw_only=True, rename="camel"):
    kind: str
    namespace: str
    name: str
    node: str
    #: Of the first NIC that stops packets; else of all of them.
    sentence: str
    next: str
    reached: bool
    interfaces: list[NetworkWalk]


def ask(client: KubeClient, namespace: str, name: str) -> NetworkReport:
    """Raises ApiError."""
    answer = client.raw("GET", subresource_path(namespace, name, "networkreport"), timeout_s=_WITHIN_S)
    return decode(answer, NetworkReport)


def ask_if_allowed(client: KubeClient, namespace: str, name: str) -> NetworkReport | None:
    """None: nobody can say just now, or the user may not know."""
    try:
        return ask(client, namespace, name)
    except (ApiError, msgspec.MsgspecError):
        return None


def explained(kind: str, namespace: str, name: str, node: str, report: NetworkReport) -> NetworkExplanation:
    walks = report.interfaces
    stopped = [walk for walk in walks if walk.state not in (REACHED, UNSEEN)]
    return NetworkExplanation(
        kind=kind,
        namespace=namespace,
        name=name,
        node=node,
        sentence=_sentence(walks, stopped),
        next=_next(namespace, name, stopped),
        reached=bool(walks) and not stopped,
        interfaces=walks,
    )


def _sentence(walks: list[NetworkWalk], stopped: list[NetworkWalk]) -> str:
    if not walks:
        return "The machine has no network card, so there is no way to walk."
    told = stopped or walks
    if len(walks) == 1:
        return told[0].sentence
    return " ".join(f"{walk.name}: {walk.sentence}" for walk in told)


def _next(namespace: str, name: str, stopped: list[NetworkWalk]) -> str:
    """In the guest, if it is the guest's affair."""
    if stopped and stopped[0].stops_at in ("pod-nic", "bridge"):
        return f"virtctl explain vmi {name} -n {namespace}"
    return f"virtctl console {name} -n {namespace}"


def as_text(found: NetworkExplanation) -> str:
    where = f" on {found.node}" if found.node else ""
    parts = [f"Network of {found.kind} {found.namespace}/{found.name}{where}"]
    for walk in found.interfaces:
        head = f"{walk.name} ({walk.binding}): {walk.state}{' at ' + walk.stops_at if walk.stops_at else ''}"
        addresses = f"Pod {_all(walk.pod_addresses)}; guest {_all(walk.guest_addresses)}"
        rows = [_HEADINGS, *((each.name, each.state, each.seen) for each in walk.stations)]
        parts.append("\n".join([f"{head}; {addresses}", *_table(rows)]))
    parts.append(f"{found.sentence}\nNext: {found.next}")
    return "\n\n".join(parts) + "\n"


def _all(addresses: list[str]) -> str:
    return ", ".join(addresses) or "without address"


def _table(rows: list[tuple[str, str, str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"{name.ljust(widths[0])}  {state.ljust(widths[1])}  {seen}".rstrip() for name, state, seen in rows]
