"""Ends guests and Pods through the API, so that guests are shut down and everybody hears of it.

Each has its own grace period, and the longest of them is waited for. Meanwhile the nodes take nothing new: a VM that
shall always run would come back at once, and be killed while it boots. It waits for the next `up` instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from virt_core.apis.names import DEFAULT_GRACE_PERIOD_S
from virt_core.apis.nodes import Node
from virt_core.apis.registry import segment
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import ApiError
from virt_core.kube.patch import MergePatch
from virt_local.up.progress import Progress

_POLL_S = 0.1
_TELL_EVERY_S = 15.0
#: What comes after a guest has ended: its Pod, the network, the finalizers.
_MARGIN_S = 30.0
_NAMED = 3
#: On a node that `down` has closed, so that `up` opens no other.
_CLOSED = "virt-local.virtpod.io/closed-by-down"
_KINDS = {"VMI": "/apis/kubevirt.io/v1/virtualmachineinstances", "Pod": "/api/v1/pods"}

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Workload:
    path: str
    uid: str
    title: str
    #: It goes already, or goes with the VMI that owns it.
    going: bool
    grace_s: float


def workload(kind: str, item: Object) -> Workload:
    metadata = item["metadata"]
    base, plural = _KINDS[kind].rsplit("/", 1)
    owned = any(ref.get("kind") == "VirtualMachineInstance" for ref in metadata.get("ownerReferences") or ())
    grace = metadata.get("deletionGracePeriodSeconds")
    if grace is None:
        grace = item.get("spec", {}).get("terminationGracePeriodSeconds")
    return Workload(
        path=f"{base}/namespaces/{segment(metadata['namespace'])}/{plural}/{segment(metadata['name'])}",
        uid=metadata["uid"],
        title=f"{kind} {metadata['namespace']}/{metadata['name']}",
        going=bool(metadata.get("deletionTimestamp")) or owned,
        grace_s=float(DEFAULT_GRACE_PERIOD_S if grace is None else grace),
    )


def allowed_s(found: Iterable[Workload], limit_s: float | None) -> float:
    """As long as the most patient of them may take, unless somebody is in a hurry."""
    longest = max(each.grace_s for each in found) + _MARGIN_S
    return longest if limit_s is None else min(longest, limit_s)


def titles(found: list[Workload]) -> str:
    named = ", ".join(each.title for each in found[:_NAMED])
    more = len(found) - _NAMED
    return f"{named} and {more} more" if more > 0 else named


def end_workloads(client: KubeClient, progress: Progress, limit_s: float | None) -> None:
    """What was there when it began. Raises ApiError when the API goes away."""
    found = _read(client)
    if not found:
        return
    close_nodes(client)
    try:
        allowed = allowed_s(found, limit_s)
        progress.step(f"ending {titles(found)}: waiting up to {allowed:.0f} s (--grace SECONDS waits less)")
        _wait(client, progress, {each.uid for each in found}, allowed)
    except KeyboardInterrupt:
        open_nodes(client)  # It goes on running after all.
        raise


def _wait(client: KubeClient, progress: Progress, uids: set[str], allowed: float) -> None:
    began = told = time.monotonic()
    while left := [each for each in _read(client) if each.uid in uids]:
        for each in left:
            if not each.going:
                _delete(client, each.path)
        now = time.monotonic()
        if now - began > allowed:
            progress.step(f"killing what did not end within {allowed:.0f} s: {titles(left)}")
            return
        if now - told > _TELL_EVERY_S:
            progress.step(f"still waiting for {titles(left)}, {allowed - (now - began):.0f} s left")
            told = now
        time.sleep(_POLL_S)


def _read(client: KubeClient) -> list[Workload]:
    return [workload(kind, item) for kind, path in _KINDS.items() for item in _items(client, path)]


def _items(client: KubeClient, path: str) -> list[Object]:
    try:
        listed = msgspec.json.decode(client.raw("GET", path))
    except ApiError as err:
        if err.status == 404:
            return []
        raise
    items: list[Object] = listed.get("items") or []
    return items


def _delete(client: KubeClient, path: str) -> None:
    try:
        client.raw("DELETE", path)
    except ApiError as err:
        # A webhook may refuse because its server is down: the node ends the Pod then.
        if err.status not in (404, 409) and not 500 <= err.status < 600:
            raise


def close_nodes(client: KubeClient) -> None:
    """Those that a person has closed stay as they are, also at the next `up`."""
    for node in client.list(Node).items:
        if not node.spec.unschedulable:
            mark = {"metadata": {"annotations": {_CLOSED: "true"}}, "spec": {"unschedulable": True}}
            client.patch(Node, node.metadata.name, "", MergePatch(mark))


def open_nodes(client: KubeClient) -> None:
    """Those that `down` has closed."""
    for node in client.list(Node).items:
        if _CLOSED in node.metadata.annotations:
            unmark = {"metadata": {"annotations": {_CLOSED: None}}, "spec": {"unschedulable": None}}
            client.patch(Node, node.metadata.name, "", MergePatch(unmark))
