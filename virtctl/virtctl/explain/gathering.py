"""Reads in one go all that an explanation is made of. What the user may not read is left out and noted."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from virt_core.apis.names import LABEL_CREATED_BY
from virt_core.apis.nodes import Event
from virt_core.apis.pods import Pod
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import ApiError, Forbidden, NotFound
from virt_core.runtime.clock import SystemClock
from virtctl.explain.facts import Facts, event_time


def gather(client: KubeClient, namespace: str, name: str, *, with_vm: bool) -> Facts:
    """Raises NotFound when neither a VMI nor (with_vm) a VM of that name exists."""
    vm = client.get(VirtualMachine, name, namespace) if with_vm else None
    unread: list[str] = []
    try:
        vmi = client.get(VirtualMachineInstance, name, namespace)
    except NotFound:
        if vm is None:
            raise
        vmi = None
    pods = _owned_pods(client, vmi, unread) if vmi else []
    events = _events(client, namespace, vm, vmi, pods, unread)
    now = SystemClock().now()
    return Facts(namespace, name, now, vm, vmi, pods, events, tuple(unread), _local_instance(client))


_LOCAL_VERSION = re.compile(r"\+virtpod-.*\.instance-([a-z0-9]+)$")


def _local_instance(client: KubeClient) -> str | None:
    """virt-local's API server says in its version whose it is."""
    try:
        version = msgspec.json.decode(client.raw("GET", "/version"), type=dict[str, Any])
    except (ApiError, msgspec.MsgspecError):
        return None
    found = _LOCAL_VERSION.search(str(version.get("gitVersion", "")))
    return found[1] if found else None


def _owned_pods(client: KubeClient, vmi: VirtualMachineInstance, unread: list[str]) -> list[Pod]:
    selector = f"{LABEL_CREATED_BY}={vmi.metadata.uid}"
    try:
        return client.list(Pod, vmi.metadata.namespace, label_selector=selector).items
    except Forbidden:
        unread.append("Pods")
        return []


def _events(  # noqa: PLR0917 - the objects that events may be about
    client: KubeClient,
    namespace: str,
    vm: VirtualMachine | None,
    vmi: VirtualMachineInstance | None,
    pods: list[Pod],
    unread: list[str],
) -> list[Event]:
    about = [obj.metadata for obj in (vm, vmi, *pods) if obj is not None]
    found: dict[str, Event] = {}
    try:
        for name in {meta.name for meta in about}:
            for event in client.list(Event, namespace, field_selector=f"involvedObject.name={name}").items:
                found[event.metadata.name] = event
    except Forbidden:
        unread.append("Events")
    uids = {meta.uid for meta in about}
    if vm is not None and vm.status.start_failure is not None:
        uids.add(vm.status.start_failure.last_failed_vmi_uid)  # Gone, and its name was the VM's.
    ours = [event for event in found.values() if event.involved_object.uid in uids]
    return sorted(ours, key=event_time)
