"""Reads what an explanation of a snapshot or a restore is made of. What the user may not read is left out and noted."""

from __future__ import annotations

from typing import TypeVar

from virt_core.apis.nodes import Event
from virt_core.apis.snapshot import (
    VirtualMachineRestore,
    VirtualMachineSnapshot,
    VirtualMachineSnapshotContent,
    content_name,
)
from virt_core.apis.storage import PersistentVolumeClaim
from virt_core.apis.vm import VirtualMachine
from virt_core.kube.client import KubeClient, KubeObject
from virt_core.kube.errors import Forbidden, NotFound
from virt_core.runtime.clock import SystemClock
from virtctl.explain.copies import Copy
from virtctl.explain.facts import event_time

T = TypeVar("T", bound=KubeObject)


def gather_snapshot(client: KubeClient, namespace: str, name: str) -> Copy:
    """Raises NotFound."""
    snapshot, unread = client.get(VirtualMachineSnapshot, name, namespace), list[str]()
    content = _optional(client, VirtualMachineSnapshotContent, content_name(snapshot), namespace, unread)
    vm = _optional(client, VirtualMachine, snapshot.spec.source.name, namespace, unread)
    about = [name, *([content.metadata.name] if content is not None else [])]
    events = _events(client, namespace, about, unread)
    return Copy(SystemClock().now(), snapshot, content, vm=vm, events=events, unread=tuple(unread))


def gather_restore(client: KubeClient, namespace: str, name: str) -> Copy:
    """Raises NotFound."""
    restore, unread = client.get(VirtualMachineRestore, name, namespace), list[str]()
    vm = _optional(client, VirtualMachine, restore.spec.target.name, namespace, unread)
    wanted = [each.persistent_volume_claim for each in restore.status.restores]
    claims = [_optional(client, PersistentVolumeClaim, each, namespace, unread) for each in wanted]
    events = _events(client, namespace, [name, *wanted], unread)
    found = [each for each in claims if each is not None]
    return Copy(SystemClock().now(), restore=restore, vm=vm, claims=found, events=events, unread=tuple(unread))


def _optional(client: KubeClient, cls: type[T], name: str, namespace: str, unread: list[str]) -> T | None:
    try:
        return client.get(cls, name, namespace)
    except NotFound:
        return None
    except Forbidden:
        unread.append(f"{cls.__name__} {name}")
        return None


def _events(client: KubeClient, namespace: str, about: list[str], unread: list[str]) -> list[Event]:
    found: list[Event] = []
    try:
        for name in about:
            found += client.list(Event, namespace, field_selector=f"involvedObject.name={name}").items
    except Forbidden:
        unread.append("Events")
    return sorted(found, key=event_time)
