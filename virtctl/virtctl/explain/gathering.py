"""Reads in one go all that an explanation is made of. What the user may not read is left out and noted."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import msgspec

from virt_core.apis.backup import VirtualMachineBackup
from virt_core.apis.datavolume import DataVolume
from virt_core.apis.export import VirtualMachineExport
from virt_core.apis.meta import ObjectMeta
from virt_core.apis.migration import VirtualMachineInstanceMigration
from virt_core.apis.moveview import MoveProgress
from virt_core.apis.names import (
    FINAL_PHASES,
    LABEL_CREATED_BY,
    LABEL_MIGRATION_JOB_UID,
    MIGRATION_RUNNING,
    PHASE_PENDING,
    PHASE_RUNNING,
    PHASE_UNSET,
)
from virt_core.apis.networkview import NetworkReport
from virt_core.apis.nodes import Event
from virt_core.apis.pods import Pod
from virt_core.apis.vm import VirtualMachine
from virt_core.apis.vmi import VirtualMachineInstance
from virt_core.kube.client import KubeClient
from virt_core.kube.errors import ApiError, Forbidden, NotFound
from virt_core.runtime.clock import SystemClock
from virtctl.explain.facts import Facts, event_time
from virtctl.explain.network import ask_if_allowed
from virtctl.migrate import jobs


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
    job = _job(client, vmi, unread) if vmi else None
    about = [obj.metadata for obj in (vm, vmi, *pods) if obj is not None]
    events = events_of(client, namespace, about, vm, unread)
    return Facts(
        namespace,
        name,
        SystemClock().now(),
        vm,
        vmi,
        pods,
        events,
        tuple(unread),
        job=job,
        progress=_progress(client, job),
        disks=_disks(client, vm, vmi),
        network=_network(client, vmi) if vmi else None,
        local_instance=_local_instance(client),
    )


def _disks(client: KubeClient, vm: VirtualMachine | None, vmi: VirtualMachineInstance | None) -> list[DataVolume]:
    """Of a machine that has not got beyond them. A cluster may have no such kind."""
    machine = vm.spec.template.spec if vm is not None and vm.spec.template is not None else None
    spec, meta = (vmi.spec, vmi.metadata) if vmi is not None else (machine, vm.metadata if vm is not None else None)
    if spec is None or meta is None or (vmi is not None and vmi.status.phase not in (PHASE_UNSET, PHASE_PENDING)):
        return []
    found = []
    for name in [volume.data_volume.name for volume in spec.volumes if volume.data_volume is not None]:
        with suppress(NotFound, Forbidden):
            found.append(client.get(DataVolume, name, meta.namespace))
    return found


def _network(client: KubeClient, vmi: VirtualMachineInstance) -> NetworkReport | None:
    """Of a guest that runs and is to be reached; the others have nothing to say about it."""
    if vmi.status.phase != PHASE_RUNNING or not any(nic.ip_address for nic in vmi.status.interfaces):
        return None
    return ask_if_allowed(client, vmi.metadata.namespace, vmi.metadata.name)


def gather_export(client: KubeClient, namespace: str, name: str) -> VirtualMachineExport:
    """Raises NotFound."""
    return client.get(VirtualMachineExport, name, namespace)


def gather_backup(client: KubeClient, namespace: str, name: str) -> VirtualMachineBackup:
    """Raises NotFound."""
    return client.get(VirtualMachineBackup, name, namespace)


def gather_move(client: KubeClient, namespace: str, name: str) -> Facts:
    """Of a migration and the machine that it moves; `pods` is the target's. Raises NotFound."""
    job = client.get(VirtualMachineInstanceMigration, name, namespace)
    unread: list[str] = []
    try:
        vmi = client.get(VirtualMachineInstance, job.spec.vmi_name, namespace)
    except NotFound:
        vmi = None
    pods = [pod for pod in (_owned_pods(client, vmi, unread) if vmi else []) if _is_target(pod, job)]
    events = events_of(client, namespace, [job.metadata, *(pod.metadata for pod in pods)], None, unread)
    return Facts(
        namespace,
        name,
        SystemClock().now(),
        vmi=vmi,
        pods=pods,
        events=events,
        unread=tuple(unread),
        job=job,
        progress=_progress(client, job),
        local_instance=_local_instance(client),
    )


def _is_target(pod: Pod, job: VirtualMachineInstanceMigration) -> bool:
    return pod.metadata.labels.get(LABEL_MIGRATION_JOB_UID) == job.metadata.uid


def _job(client: KubeClient, vmi: VirtualMachineInstance, unread: list[str]) -> VirtualMachineInstanceMigration | None:
    try:
        found = jobs.of_vmi(client, vmi.metadata.namespace, vmi.metadata.name)
    except Forbidden:
        unread.append("Migrations")
        return None
    return jobs.unfinished(found) or (found[-1] if found else None)


def _progress(client: KubeClient, job: VirtualMachineInstanceMigration | None) -> MoveProgress | None:
    """What was not begun has none."""
    told = job is not None and (job.status.phase == MIGRATION_RUNNING or job.status.phase in FINAL_PHASES)
    return jobs.progress(client, job) if told and job is not None else None


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


def events_of(
    client: KubeClient, namespace: str, about: list[ObjectMeta], vm: VirtualMachine | None, unread: list[str]
) -> list[Event]:
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
